// The kernel's list of routes, as it stands on a host of ours.
import { describe, expect, test } from 'vitest'
import { parsePrefix } from '../../../dataplane/index.ts'
import { hasRoute } from '../../../src/host/proc-route.ts'

const LIST = `Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0138A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
flannel.1\t0000F40A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
cni0\t0001F40A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
`
const has = (prefix: string, device: string) => hasRoute(LIST, parsePrefix(prefix)!, device)

describe('a route is there', () => {
  test.each([
    ['10.244.0.0/16', 'flannel.1'],
    ['10.244.1.0/24', 'cni0'],
    ['0.0.0.0/0', 'eth0'],
  ])('when prefix and device agree: %s %s', (prefix, device) => {
    expect(has(prefix, device)).toBe(true)
  })

  test.each([
    ['another device', '10.244.0.0/16', 'flannel.2'],
    ['a device whose name starts alike', '10.244.0.0/16', 'flannel.'],
    ['another network', '10.245.0.0/16', 'flannel.1'],
    ['another length', '10.244.0.0/17', 'flannel.1'],
    ['an address in it', '10.244.1.0/24', 'flannel.1'],
  ])('and not with %s', (_, prefix, device) => {
    expect(has(prefix, device)).toBe(false)
  })

  test('and not in an empty list', () => {
    expect(hasRoute('', parsePrefix('10.244.0.0/16')!, 'flannel.1')).toBe(false)
  })
})
