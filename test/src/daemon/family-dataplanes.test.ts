// Two dataplanes that look like one: begun together or not at all, moved one by one, counted together.
import { describe, expect, test } from 'vitest'
import { parseIpv6Prefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { FamilyDataplanes } from '../../../src/daemon/family-dataplanes.ts'
import type { LocalVtep } from '../../../src/host/dataplane.ts'
import { FakeDataplane } from '../../support/fake-dataplane.ts'
import { ip, ip6 } from '../../support/packets.ts'
import { dualLease } from '../../support/peer-lease.ts'

const IPV6_DEVICE = { deviceName: 'flannel-v6.1', underlayAddress: ip6('2001:db8::1'), mtuBytes: 1430, mac: 6 }
const IPV4: LocalVtep = {
  ...{ encapsulation: 'vxlan', deviceName: 'flannel.1', vni: 1, port: 8472, mac: 4, mtuBytes: 1450 },
  ...{ underlayInterface: 'eth0', underlayAddress: ip('192.0.2.1'), overlayAddress: ip('10.244.1.0') },
  ...{ network: parsePrefix('10.244.0.0/16'), subnet: parsePrefix('10.244.1.0/24') },
  ...{ ipv6Network: null, ipv6Subnet: null },
}
const IPV6_NETWORKS = {
  ipv6Network: parseIpv6Prefix('fd00:10:244::/48'),
  ipv6Subnet: parseIpv6Prefix('fd00:10:244:1::/64'),
}
const DUAL: LocalVtep = { ...IPV4, ...IPV6_NETWORKS, ipv6Device: IPV6_DEVICE }
/** What the second one should see. */
const IPV6: LocalVtep = {
  ...{ ...IPV4, ...IPV6_NETWORKS, ...IPV6_DEVICE },
  ...{ network: null, subnet: null, overlayAddress: ip6('fd00:10:244:1::') },
}

async function running(local = DUAL) {
  const parts: FakeDataplane[] = []
  const whole = new FamilyDataplanes(() => {
    parts.push(new FakeDataplane())
    return parts.at(-1)!
  })
  await whole.prepare(local)
  await whole.start(local)
  return { whole, parts, first: parts[0]!, second: parts[1]! }
}

test('each has its family, device and address, and knows nothing of the other', async () => {
  const { parts, first, second } = await running()
  expect(parts.map(({ local }) => local)).toEqual([IPV4, IPV6])
  expect(first.outline).toEqual(IPV4)
  expect(second.outline).toMatchObject({ network: null, deviceName: 'flannel-v6.1', mtuBytes: 1430 })
  expect(second.outline).not.toHaveProperty('ipv6Device')
})

test.each<[string, LocalVtep]>([
  ['IPv4 alone', IPV4],
  ['IPv6 that rides over IPv4', { ...IPV4, ...IPV6_NETWORKS }],
  ['IPv6 alone', IPV6],
])('%s has one, which sees the node as it is', async (_, local) => {
  const { parts, first } = await running(local)
  expect([parts.length, first.local]).toEqual([1, local])
})

describe('a start', () => {
  test('whose rehearsal fails for IPv6 lets go of IPv4', async () => {
    const parts = [new FakeDataplane(), new FakeDataplane()] as const
    let made = 0
    const whole = new FamilyDataplanes(() => parts[made++]!)
    parts[1].prepareFailures.push(new Error('the port is taken'))
    await expect(whole.prepare(DUAL)).rejects.toThrow('the port is taken')
    expect(parts[0].stops).toEqual(['keep'])
  })

  test('that fails for IPv6 takes IPv4 back, so that nothing is half there', async () => {
    const parts = [new FakeDataplane(), new FakeDataplane()] as const
    let made = 0
    const whole = new FamilyDataplanes(() => parts[made++]!)
    await whole.prepare(DUAL)
    parts[1].startFailures.push(new Error('no device'))
    await expect(whole.start(DUAL)).rejects.toThrow('no device')
    expect(parts.map(({ stops }) => stops)).toEqual([['remove'], ['keep']])
  })
})

describe('a change of the underlay', () => {
  test('of one address moves that one only', async () => {
    const { whole, first, second } = await running()
    const moved = { ...DUAL, ipv6Device: { ...IPV6_DEVICE, underlayAddress: ip6('2001:db8::9') } }
    first.moveFailures.push(new Error('not asked for'))
    await whole.moveUnderlay(moved)
    expect([first.local, second.local?.underlayAddress]).toEqual([IPV4, ip6('2001:db8::9')])
  })

  test('of the interface moves both', async () => {
    const { whole, parts } = await running()
    await whole.moveUnderlay({ ...DUAL, underlayInterface: 'eth1' })
    expect(parts.map(({ local }) => local?.underlayInterface)).toEqual(['eth1', 'eth1'])
  })

  test('that fails on one side is made up for by the next call', async () => {
    const { whole, first, second } = await running()
    first.moveFailures.push(new Error('not now'))
    const moved = { ...DUAL, underlayInterface: 'eth1' }
    await expect(whole.moveUnderlay(moved)).rejects.toThrow('not now')
    expect([first.local?.underlayInterface, second.local?.underlayInterface]).toEqual(['eth0', 'eth1'])
    second.moveFailures.push(new Error('done already'))
    await whole.moveUnderlay(moved)
    expect(first.local?.underlayInterface).toBe('eth1')
  })

  test('of the MTU goes to each with its own', async () => {
    const { whole, parts } = await running()
    await whole.changeMtu({ ...DUAL, mtuBytes: 1350, ipv6Device: { ...IPV6_DEVICE, mtuBytes: 1330 } })
    expect(parts.map(({ local }) => local?.mtuBytes)).toEqual([1350, 1330])
  })
})

describe('peers', () => {
  test('go to both', async () => {
    const { whole, parts } = await running()
    expect(await whole.replacePeers([dualLease(2)], 'a test')).toBe(1)
    expect(parts.map(({ subnets }) => subnets)).toEqual([['10.244.2.0/24'], ['10.244.2.0/24']])
  })

  test('that one does not take go to the other all the same', async () => {
    const { whole, first, second } = await running()
    first.replaceFailures.push(new Error('no'))
    await expect(whole.replacePeers([dualLease(2)], 'a test')).rejects.toThrow('no')
    expect(second.subnets).toEqual(['10.244.2.0/24'])
  })
})

describe('what is told', () => {
  test('counters are sums, and books those of both', async () => {
    const { whole } = await running()
    expect(whole.counters()).toEqual({ 'outbound.packets.read': 14 })
    expect(whole.books?.workerRestarts()).toEqual([0, 2, 0, 2])
  })

  test('trouble of IPv6 is named as such, and that of IPv4 comes first', async () => {
    const { whole, first, second } = await running()
    expect(whole.impairment()).toBeNull()
    second.trouble = 'the underlay address is gone'
    expect(whole.impairment()).toBe('IPv6: the underlay address is gone')
    first.trouble = 'the device is gone'
    expect(whole.impairment()).toBe('the device is gone')
  })

  test('a stop stops both', async () => {
    const { whole, parts } = await running()
    await whole.stop('remove')
    expect(parts.map(({ stops }) => stops)).toEqual([['remove'], ['remove']])
  })
})
