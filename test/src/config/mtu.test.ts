// MTU arithmetic: the config's MTU is the underlay's, what encapsulation adds comes from the headers themselves.
import { expect, test } from 'vitest'
import { chooseMtu } from '../../../src/config/mtu.ts'

test.each([
  ['vxlan', 1500, 1450],
  ['vxlan', 9001, 8951],
  ['udp', 1500, 1472],
  ['udp', 9001, 8973],
] as const)('%s over an interface of %i carries %i', (encapsulation, underlay, overlay) => {
  expect(chooseMtu(encapsulation, underlay, null).overlayBytes).toBe(overlay)
})

test.each([
  [1500, 1430],
  [9001, 8931],
] as const)('vxlan between IPv6 addresses over an interface of %i carries %i', (underlay, overlay) => {
  expect(chooseMtu('vxlan', underlay, null, true)).toMatchObject({
    overlayBytes: overlay,
    how: `underlay ${underlay} − overhead 70 = ${overlay}`,
  })
})

test('a configured MTU is the underlay MTU, and the sum is shown', () => {
  expect(chooseMtu('vxlan', 1500, 1420)).toEqual({
    overlayBytes: 1370,
    how: 'underlay 1420 − overhead 50 = 1370',
    warning: null,
  })
  expect(chooseMtu('vxlan', 1500, 1500).overlayBytes).toBe(1450)
})

test('a configured MTU larger than the interface is warned about', () => {
  const choice = chooseMtu('vxlan', 1500, 9000)
  expect(choice.overlayBytes).toBe(8950)
  expect(choice.warning).toMatch(/9000.*1500/)
})
