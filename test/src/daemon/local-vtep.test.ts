// This node's own end after a change of the underlay.
import { describe, expect, test } from 'vitest'
import { movedTo, standsAt, withUnderlayMtu } from '../../../src/daemon/local-vtep.ts'
import type { LocalVtep } from '../../../src/host/dataplane.ts'
import type { UnderlayInterface } from '../../../src/host/underlay-interface.ts'
import { ip, ip6 } from '../../support/packets.ts'

const IPV6_DEVICE = { deviceName: 'flannel-v6.1', underlayAddress: ip6('2001:db8::1'), mtuBytes: 1430, mac: 6 }
const LOCAL = {
  ...{ deviceName: 'flannel.1', mtuBytes: 1450, underlayInterface: 'eth0', underlayAddress: ip('192.0.2.1') },
} as LocalVtep
const DUAL = { ...LOCAL, ipv6Device: IPV6_DEVICE }
const eth1 = (ipv6Address?: bigint) => {
  return {
    name: 'eth1',
    address: ip('192.0.2.9'),
    ...(ipv6Address === undefined ? {} : { ipv6Address }),
  } as UnderlayInterface
}

test('a move takes each tunnel to its own address', () => {
  const moved = movedTo(DUAL, eth1(ip6('2001:db8::9')))
  expect(moved).toMatchObject({ underlayInterface: 'eth1', underlayAddress: ip('192.0.2.9'), mtuBytes: 1450 })
  expect(moved.ipv6Device).toEqual({ ...IPV6_DEVICE, underlayAddress: ip6('2001:db8::9') })
  expect([standsAt(moved, eth1(ip6('2001:db8::9'))), standsAt(DUAL, eth1())]).toEqual([true, false])
})

describe('another MTU of the underlay', () => {
  const vxlan = { encapsulation: 'vxlan', mtuBytes: null, underlay: 'ipv4' } as const
  const follow = (local: LocalVtep, bytes: number, mtuBytes: number | null = null) => {
    const config = { ipv6: local.ipv6Device === undefined ? null : {} }
    return withUnderlayMtu(local, bytes, { backend: { ...vxlan, mtuBytes }, config } as never)
  }

  test('is that of both tunnels, less what each takes', () => {
    expect(follow(LOCAL, 1400)).toMatchObject({ changed: { mtuBytes: 1350 }, sentence: expect.stringMatching(/^MTU/) })
    const { changed } = follow(DUAL, 1400)
    expect([changed?.mtuBytes, changed?.ipv6Device?.mtuBytes]).toEqual([1350, 1330])
  })

  test('that is the one it had is no news', () => {
    expect(follow(DUAL, 1500)).toEqual({ changed: null, sentence: null })
  })

  test.each([
    ['the config fixes another', LOCAL, 1400, 1500, /fixed by the config/],
    ['it leaves IPv6 of pods too little', DUAL, 1345, null, /at least 1280 are needed/],
  ])('is not followed where %s', (_, local, bytes, configured, sentence) => {
    expect(follow(local, bytes, configured)).toEqual({ changed: null, sentence: expect.stringMatching(sentence) })
  })
})
