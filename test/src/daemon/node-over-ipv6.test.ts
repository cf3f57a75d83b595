// A node whose IPv6 has a tunnel of its own, from its first lease to a change of its addresses: beside IPv4, and alone.
import { describe, expect, test } from 'vitest'
import { formatMac } from '../../../dataplane/wire/address.ts'
import type { UnderlayInterface } from '../../../src/host/underlay-interface.ts'
import { identityOf } from '../../../src/lease/lease.ts'
import { vtepMacForIpv6, vtepMacOf } from '../../../src/store/flannel-json.ts'
import { ETH0, makeHost, started } from '../../support/agent-host.ts'
import { following, OLD_TEXT } from '../../support/following-host.ts'
import { ip, ip6 } from '../../support/packets.ts'
import { DUAL_CONFIG } from '../../support/store-harness.ts'

const BOTH = '{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:10:244::/48","Backend":{"Type":"vxlan"}}'
const ALONE = '{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00:10:244::/48","Backend":{"Type":"vxlan"}}'
const IPV6_TEXT = '2001:db8::1'
const ETH0_BOTH: UnderlayInterface = { ...ETH0, ipv6Address: ip6(IPV6_TEXT) }
const ETH0_ALONE: UnderlayInterface = { ...ETH0, address: ip6(IPV6_TEXT) }
const SETTLED_MS = 6000

const leaseOf = (host: ReturnType<typeof makeHost>) => host.shared.book().leases()[0]!
const onBoth = { selectUnderlay: async () => ETH0_BOTH }
const onIpv6 = { selectUnderlay: async () => ETH0_ALONE }

describe('a node with both', () => {
  test('says both addresses and two MACs, and has two devices', async () => {
    const host = makeHost(BOTH)
    const { dataplane, agent } = await started(host, onBoth)
    const { attributes } = leaseOf(host)
    expect([attributes.publicIp, attributes.publicIpv6]).toEqual([ETH0.address, IPV6_TEXT])
    const { mac, ipv6Device } = dataplane.local!
    expect([vtepMacOf(attributes), vtepMacForIpv6(attributes)]).toEqual([mac, ipv6Device!.mac])
    expect(ipv6Device).toMatchObject({ deviceName: 'flannel-v6.1', underlayAddress: ip6(IPV6_TEXT), mtuBytes: 1430 })
    expect(formatMac(ipv6Device!.mac)).toMatch(/^.[26ae]:/)
    expect(ipv6Device!.mac).not.toBe(mac)
    expect([agent.local!.mtuBytes, host.env()]).toEqual([1450, expect.stringContaining('FLANNEL_MTU=1450\n')])
  })

  test('keeps both MACs over a restart, from its own memory', async () => {
    const host = makeHost(BOTH)
    const first = await started(host, onBoth)
    const [mac, ipv6Mac] = [first.agent.local!.mac, first.agent.local!.ipv6Device!.mac]
    await first.agent.stop('keep')
    host.shared.edit(() => [])
    const { agent } = await started(host, onBoth)
    expect([agent.local!.mac, agent.local!.ipv6Device!.mac]).toEqual([mac, ipv6Mac])
  })

  test('takes a MAC of its own for IPv6 where its lease had none but that of IPv4', async () => {
    const host = makeHost(DUAL_CONFIG)
    const first = await started(host)
    await first.agent.stop('keep')
    host.shared.config = BOTH
    const { agent } = await started(host, onBoth)
    expect(agent.local!.mac).toBe(first.agent.local!.mac)
    expect(agent.local!.ipv6Device!.mac).not.toBe(agent.local!.mac)
    expect(leaseOf(host).ipv6Subnet).toBe(first.agent.manager!.lease.ipv6Subnet)
  })

  test('tells peers the public addresses that it was given', async () => {
    const host = makeHost(BOTH)
    const { dataplane } = await started(host, {
      ...onBoth,
      publicIp: ip('203.0.113.5'),
      publicIpv6: ip6('2001:db8:9::5'),
    })
    expect(leaseOf(host).attributes).toMatchObject({ publicIp: ip('203.0.113.5'), publicIpv6: '2001:db8:9::5' })
    expect([dataplane.local!.underlayAddress, dataplane.local!.ipv6Device!.underlayAddress]).toEqual([
      ETH0.address,
      ip6(IPV6_TEXT),
    ])
  })

  test('on an underlay that leaves IPv6 too little does not start', async () => {
    const narrow = { selectUnderlay: async () => ({ ...ETH0_BOTH, mtuBytes: 1349 }) }
    await expect(started(makeHost(BOTH), narrow)).rejects.toMatchObject({
      code: 'interface-unsuitable',
      message: expect.stringContaining('1349 − overhead 70 = 1279, at least 1280'),
    })
    await started(makeHost(BOTH), { selectUnderlay: async () => ({ ...ETH0_BOTH, mtuBytes: 1350 }) })
  })
})

describe('its underlay', () => {
  const first = { choice: ETH0_BOTH, texts: [OLD_TEXT, IPV6_TEXT] }

  test('that gets another IPv6 address is followed; lease, subnets and IPv4 stay', async () => {
    const node = await following({}, BOTH, first)
    const before = node.lease()
    node.choose({ ...ETH0_BOTH, ipv6Address: ip6('2001:db8::9') })
    node.carry([OLD_TEXT, '2001:db8::9'])
    await node.clock.advance(SETTLED_MS)
    expect(node.lease()).toMatchObject({
      ...{ subnet: before.subnet, ipv6Subnet: before.ipv6Subnet },
      attributes: { ...before.attributes, publicIpv6: '2001:db8::9' },
    })
    expect(node.dataplane.local?.ipv6Device?.underlayAddress).toBe(ip6('2001:db8::9'))
    expect(node.said('underlay-moved')[0]?.message).toContain('192.0.2.1 and 2001:db8::9 on eth0 now')
  })

  test('that loses one which was fixed is waited for', async () => {
    const node = await following({ publicIpv6: ip6(IPV6_TEXT) }, BOTH, first)
    node.choose({ ...ETH0_BOTH, ipv6Address: ip6('2001:db8::9') })
    node.carry([OLD_TEXT, '2001:db8::9'])
    await node.clock.advance(60_000)
    expect([node.revision(), node.said('underlay-fixed').length]).toEqual([node.written, 1])
    expect(node.said('underlay-fixed')[0]?.message).toContain('2001:db8::1 was fixed by --public-ipv6')
  })

  test('with another MTU is followed by both devices', async () => {
    const node = await following({}, BOTH, first)
    node.carry(first.texts, 1400)
    await node.clock.advance(50)
    expect([node.dataplane.local?.mtuBytes, node.dataplane.local?.ipv6Device?.mtuBytes]).toEqual([1350, 1330])
    expect(node.env()).toContain('FLANNEL_MTU=1350\n')
  })

  test('with one too small for IPv6 is followed by neither', async () => {
    const node = await following({}, BOTH, first)
    node.carry(first.texts, 1349)
    await node.clock.advance(50)
    expect([node.dataplane.local?.mtuBytes, node.dataplane.local?.ipv6Device?.mtuBytes]).toEqual([1450, 1430])
    expect(node.said('underlay-mtu-unfollowed')[0]?.message).toContain('1280')
  })
})

describe('a node without IPv4', () => {
  test('is known by its IPv6 address, and carries and publishes nothing else', async () => {
    const host = makeHost(ALONE)
    const claimed: (number | bigint)[] = []
    const claimIdentity = async (address: number | bigint) => void claimed.push(address)
    const { dataplane, agent } = await started(host, { ...onIpv6, claimIdentity })
    const lease = leaseOf(host)
    expect([lease.subnet, lease.attributes.publicIp, lease.attributes.publicIpv6]).toEqual([null, 0, IPV6_TEXT])
    expect(lease.attributes).not.toHaveProperty('backendData')
    expect(claimed).toEqual([ip6(IPV6_TEXT)])
    expect(dataplane.local).toMatchObject({ network: null, subnet: null, deviceName: 'flannel-v6.1', mtuBytes: 1430 })
    expect(dataplane.local).not.toHaveProperty('ipv6Device')
    expect(host.env()).toMatch(
      /^FLANNEL_IPV6_NETWORK=.*\nFLANNEL_IPV6_SUBNET=.*\nFLANNEL_MTU=1430\nFLANNEL_IPMASQ=false\n$/,
    )
    expect(agent.state).toBe('ready')
  })

  test('has the same lease and MAC after a restart, also while the store is away', async () => {
    const host = makeHost(ALONE)
    const first = await started(host, onIpv6)
    const lease = leaseOf(host)
    await first.agent.stop('keep')
    const again = await started(host, onIpv6)
    expect(leaseOf(host)).toMatchObject({ ipv6Subnet: lease.ipv6Subnet, attributes: lease.attributes })
    await again.agent.stop('keep')
    host.shared.setOutage('switched off')
    const { agent } = await started(host, onIpv6)
    expect([agent.state, agent.local!.ipv6Subnet]).toEqual(['degraded', first.agent.local!.ipv6Subnet])
  })

  test('takes no other node’s lease, whose IPv4 address is the same, none', async () => {
    const host = makeHost(ALONE)
    await started(host, onIpv6)
    const other = await started(
      { ...makeHost(ALONE), shared: host.shared },
      { selectUnderlay: async () => ({ ...ETH0, address: ip6('2001:db8::2') }), store: host.shared.open(() => 0.9) },
    )
    const identities = host.shared
      .book()
      .leases()
      .map(({ attributes }) => identityOf(attributes))
    expect(new Set(identities)).toEqual(new Set([ip6(IPV6_TEXT), ip6('2001:db8::2')]))
    expect(other.agent.state).toBe('ready')
  })

  test('moves with its address and keeps its subnet', async () => {
    const node = await following({}, ALONE, { choice: ETH0_ALONE, texts: [IPV6_TEXT] })
    const before = node.lease()
    node.choose({ ...ETH0_ALONE, address: ip6('2001:db8::9') })
    node.carry(['2001:db8::9'])
    await node.clock.advance(SETTLED_MS)
    expect(node.lease()).toMatchObject({ ipv6Subnet: before.ipv6Subnet, attributes: { publicIpv6: '2001:db8::9' } })
    expect([node.agent.state, node.dataplane.local?.underlayAddress]).toEqual(['ready', ip6('2001:db8::9')])
  })
})

test('--public-ipv6 where no tunnel goes over IPv6 is said to have no effect', async () => {
  const host = makeHost()
  await started(host, { publicIpv6: ip6('2001:db8::5') })
  expect(host.log.of('option-without-effect')[0]?.message).toContain('--public-ipv6')
  expect(leaseOf(host).attributes.publicIpv6).toBeNull()
})
