// Somebody else's more specific routes beside the userspace dataplane's one: what is said of them, and what the looking
// costs.
import { describe, expect, test } from 'vitest'
import { parseIpv6Prefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { ForeignRouteWatch } from '../../../src/daemon/foreign-route-watch.ts'
import type { LocalVtep } from '../../../src/host/dataplane.ts'
import type { RouteInfo } from '../../../src/host/ip.ts'
import { FakeRouteTable } from '../../support/fake-route-table.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { RecordingLog } from '../../support/recording-log.ts'

const LOCAL = {
  ...{ deviceName: 'flannel.1', underlayInterface: 'eth0' },
  ...{ network: parsePrefix('10.244.0.0/16')!, subnet: parsePrefix('10.244.1.0/24') },
  ...{ ipv6Network: parseIpv6Prefix('fd00::/16')!, ipv6Subnet: parseIpv6Prefix('fd00:1::/64') },
} as LocalVtep
const PEERS = [
  peerLease('10.244.2.0/24', '192.0.2.2', '02:00:00:00:00:02', 'fd00:2::/64'),
  peerLease('10.244.3.0/24', '192.0.2.3', '02:00:00:00:00:03'),
]
const OURS: RouteInfo = { dst: '10.244.0.0/16', dev: 'flannel.1' }
const PART: RouteInfo = { dst: '10.244.2.128/25', dev: 'eth0', protocol: 'static' }

/** As the kernel lists them (proc(5)): tags are not there. */
function listed(routes: readonly RouteInfo[]) {
  const hex = (address: number) => {
    const bytes = [0, 8, 16, 24].map((shift) => (address >>> shift) & 255)
    return bytes.map((byte) => byte.toString(16).padStart(2, '0')).join('')
  }
  const ipv4 = routes.flatMap(({ dst, dev = '*', gateway }) => {
    const prefix = parsePrefix(dst)
    if (prefix === null) return []
    const [to, by] = [prefix.address, gateway === undefined ? 0 : parsePrefix(`${gateway}/32`)!.address]
    const mask = prefix.length === 0 ? 0 : -1 << (32 - prefix.length)
    return [`${dev}\t${hex(to)}\t${hex(by)}\t0001\t0\t0\t0\t${hex(mask)}\t0\t0\t0`]
  })
  const ipv6 = routes.flatMap(({ dst, dev }) => {
    const prefix = parseIpv6Prefix(dst)
    if (prefix === null) return []
    const [to, length] = [prefix.address.toString(16).padStart(32, '0'), prefix.length.toString(16)]
    return [`${to} ${length} ${'0'.repeat(32)} 00 ${'0'.repeat(32)} 00000400 00000001 00000000 00000001 ${dev}`]
  })
  return { ipv4: ['Iface\tDestination\tGateway', ...ipv4, ''].join('\n'), ipv6: [...ipv6, ''].join('\n') }
}

function watching(...routes: RouteInfo[]) {
  const [table, log] = [new FakeRouteTable(), new RecordingLog()]
  table.routes = [OURS, ...routes]
  const watch = new ForeignRouteWatch({ table, log, lists: () => listed(table.routes) })
  const look = () => watch.look(LOCAL, PEERS)
  return { table, log, watch, look }
}

describe('a route of somebody else’s', () => {
  test('to a part of a peer’s subnet is told, and the rest takes the tunnel', async () => {
    const { watch, look, log } = watching(PART)
    await look()
    expect([...watch.ways()!]).toEqual([
      [
        '10.244.2.0/24',
        { way: 'tunnel', why: 'a route that is not ours takes a part of it: 10.244.2.128/25 dev eth0 proto static' },
      ],
      ['fd00:2::/64', { way: 'tunnel', why: '' }],
      ['10.244.3.0/24', { way: 'tunnel', why: '' }],
    ])
    expect([[...watch.lost], log.of('foreign-route').length]).toEqual([[], 1])
  })

  test('to all of it keeps every packet from it', async () => {
    const { watch, look } = watching({ ...PART, dst: '10.244.2.0/23' })
    await look()
    const why = 'a route that is not ours is in the way: 10.244.2.0/23 dev eth0 proto static'
    expect(Object.fromEntries(watch.lost)).toEqual({ '10.244.2.0/24': why, '10.244.3.0/24': why })
    expect(watch.ways()).toBeNull()
  })

  test('to a part of an IPv6 subnet is told as well', async () => {
    const { watch, look } = watching({ dst: 'fd00:2::/65', dev: 'eth0' })
    await look()
    expect(watch.ways()?.get('fd00:2::/64')?.why).toMatch(/takes a part of it: fd00:2::\/65 dev eth0/)
  })

  test('is forgotten when it is gone, and when its peer is', async () => {
    const { watch, look, table, log } = watching(PART)
    await look()
    table.routes = [OURS]
    await look()
    expect([watch.ways(), log.of('foreign-route-gone').length]).toEqual([null, 1])
    table.routes = [OURS, PART]
    await look()
    await watch.look(LOCAL, PEERS.slice(1))
    expect(watch.ways()).toBeNull()
  })

  test('is told again of a peer that comes later', async () => {
    const { watch, look } = watching(PART)
    await watch.look(LOCAL, [])
    expect(watch.ways()).toBeNull()
    await look()
    expect(watch.ways()?.size).toBe(3)
  })
})

test.each<[string, RouteInfo]>([
  ['to this node’s own pods', { dst: '10.244.1.0/24', dev: 'cni0', protocol: 'kernel' }],
  ['to nobody’s subnet', { ...PART, dst: '10.244.99.0/24' }],
  ['to more than the network', { ...PART, dst: '10.0.0.0/8' }],
  ['to the peer itself', { ...PART, dst: '10.244.2.0/24', gateway: '192.0.2.2' }],
])('one %s is nobody’s trouble, and no program is asked', async (_, route) => {
  const { watch, look, table } = watching(route)
  await look()
  expect([watch.ways(), table.looks]).toEqual([null, 0])
})

test('one with our tag is ours: `ip` tells', async () => {
  const { watch, look, table } = watching({ dst: '10.244.2.0/24', gateway: '192.0.2.9', dev: 'eth0', protocol: '142' })
  await look()
  expect([watch.ways(), table.looks]).toEqual([null, 1])
})

test('a host that does not change asks no program again', async () => {
  const { look, table } = watching(PART)
  for (let second = 0; second < 5; second++) await look()
  expect(table.looks).toBe(1)
})

test('nor does one where the kernel counts other users of an IPv6 route', async () => {
  const [table, log] = [new FakeRouteTable(), new RecordingLog()]
  table.routes = [OURS, { dst: 'fd00:2::/65', dev: 'eth0' }]
  let users = 1
  const lists = () => {
    const { ipv4, ipv6 } = listed(table.routes)
    return { ipv4, ipv6: ipv6.replace('00000400 00000001', `00000400 0000000${users++}`) }
  }
  const watch = new ForeignRouteWatch({ table, log, lists })
  for (let second = 0; second < 5; second++) await watch.look(LOCAL, PEERS)
  expect([watch.ways()?.size, table.looks]).toEqual([3, 1])
})

test('what cannot be read is told, and looked at again', async () => {
  const { watch, look, table, log } = watching(PART)
  table.broken = true
  expect(await look()).toBe(false)
  expect([watch.ways(), log.of('routes-unreadable').length]).toEqual([null, 1])
  expect(watch.unseen).toBe('no more memory')
  table.broken = false
  await look()
  expect(watch.unseen).toBeNull()
  expect(watch.ways()?.size).toBe(3)
})

test('a route that comes while `ip` is asked, and goes before the next look, is not told of for ever', async () => {
  const { watch, look, table } = watching(PART)
  const other: RouteInfo = { dst: '10.244.3.0/24', dev: 'eth0', protocol: 'static' }
  const read = table.read.bind(table)
  table.read = (networks) => {
    table.routes = [...table.routes, other] // the lists were read before
    return read(networks)
  }
  expect([await look(), watch.unseen]).toEqual([false, null])
  table.read = read
  table.routes = [OURS, PART]
  expect(await look()).toBe(true)
  expect([[...watch.lost.keys()], watch.ways()?.size]).toEqual([[], 3])
})

test('a process without files left to open goes on with what it knew', async () => {
  const [table, log] = [new FakeRouteTable(), new RecordingLog()]
  table.routes = [OURS, PART]
  let left = 2 // before and after `ip` is asked
  const lists = () => {
    if (left-- <= 0) throw new Error('EMFILE: too many open files')
    return listed(table.routes)
  }
  const watch = new ForeignRouteWatch({ table, log, lists })
  for (let second = 0; second < 2; second++) await watch.look(LOCAL, PEERS)
  expect([watch.ways()?.size, log.of('routes-unreadable').length]).toEqual([3, 1])
})
