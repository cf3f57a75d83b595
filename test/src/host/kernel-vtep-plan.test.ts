// What the kernel's tables should hold, and the commands that bring them there.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { formatIpv4, formatMac } from '../../../dataplane/wire/address.ts'
import { parseIpv6Prefix } from '../../../dataplane/wire/prefix.ts'
import {
  desiredRows,
  type PresentRows,
  planProgram,
  planRemoval,
  programmable,
  subnetRowsOf,
} from '../../../src/host/kernel-vtep-plan.ts'
import type { Lease } from '../../../src/lease/lease.ts'
import { peerLease } from '../../support/peer-lease.ts'

const HOST2 = peerLease('10.244.2.0/24', '192.0.2.2', '02:00:00:00:00:02')
const HOST3 = peerLease('10.244.3.0/24', '192.0.2.3', '02:00:00:00:00:03')
const LOCAL = {
  encapsulation: 'vxlan',
  underlayAddress: 0xc0000201,
  ipv6Network: parseIpv6Prefix('fd00:10:244::/48'),
} as const
const NOTHING: PresentRows = { neighbors: [], fdb: [], routes: [] }

const commands = (list: readonly { readonly command: string }[]) => list.map(({ command }) => command)

/** What the kernel would show after all commands for these leases worked. */
function programmed(leases: readonly Lease[]): PresentRows {
  const rows = desiredRows(leases, LOCAL)
  return {
    neighbors: rows.flatMap((row) => {
      const entry = { lladdr: row.mac, state: ['PERMANENT'], protocol: '142' }
      return subnetRowsOf(row).map(({ gateway }) => ({ dst: gateway, ...entry }))
    }),
    fdb: rows.map(({ mac, underlayAddress }) => ({ mac, dst: underlayAddress, state: 'permanent', flags: ['self'] })),
    routes: rows.flatMap(subnetRowsOf).map(({ subnet, gateway }) => ({
      dst: subnet,
      gateway,
      dev: 'flannel.1',
      protocol: '142',
      flags: ['onlink'],
      ...(subnet.includes(':') ? { metric: 1024 } : {}),
    })),
  }
}

describe('a peer', () => {
  test('is a neighbour, an FDB entry and an onlink route through its subnet address', () => {
    const plan = planProgram('flannel.1', desiredRows([HOST2], LOCAL), NOTHING)
    expect(commands(plan.neighbors)).toEqual([
      'neigh replace 10.244.2.0 lladdr 02:00:00:00:00:02 dev flannel.1 nud permanent protocol 142',
    ])
    expect(commands(plan.fdb)).toEqual(['fdb replace 02:00:00:00:00:02 dev flannel.1 dst 192.0.2.2 self permanent'])
    expect(commands(plan.routes)).toEqual(['route add 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink proto 142'])
  })

  test('without a usable VTEP MAC gets no row', () => {
    const attributes = { ...HOST2.attributes, backendData: { VNI: 1, VtepMAC: 'nonsense' } }
    expect(desiredRows([{ ...HOST2, attributes }, HOST3], LOCAL).map(({ subnet }) => subnet)).toEqual(['10.244.3.0/24'])
  })

  test('that is there already needs no command', () => {
    const present = programmed([HOST2, HOST3])
    const plan = planProgram('flannel.1', desiredRows([HOST2, HOST3], LOCAL), present)
    expect([plan.neighbors, plan.fdb, plan.routes]).toEqual([[], [], []])
    expect(planRemoval('flannel.1', desiredRows([HOST2, HOST3], LOCAL), present)).toEqual({
      routes: [],
      fdb: [],
      neighbors: [],
    })
  })

  test('with a new MAC changes neighbour and FDB, and the FDB entry of its old MAC goes', () => {
    const changed = desiredRows([peerLease('10.244.2.0/24', '192.0.2.2', '02:00:00:00:00:99')], LOCAL)
    const present = programmed([HOST2])
    const plan = planProgram('flannel.1', changed, present)
    expect([plan.neighbors.length, plan.fdb.length, plan.routes.length]).toEqual([1, 1, 0])
    expect(planRemoval('flannel.1', changed, present).fdb).toEqual([
      'fdb delete 02:00:00:00:00:02 dev flannel.1 dst 192.0.2.2 self',
    ])
  })

  test('with a new address changes the FDB entry only', () => {
    const moved = desiredRows([peerLease('10.244.2.0/24', '192.0.2.77', '02:00:00:00:00:02')], LOCAL)
    const present = programmed([HOST2])
    const plan = planProgram('flannel.1', moved, present)
    expect(commands(plan.fdb)).toEqual(['fdb replace 02:00:00:00:00:02 dev flannel.1 dst 192.0.2.77 self permanent'])
    expect([plan.neighbors, plan.routes]).toEqual([[], []])
    expect(planRemoval('flannel.1', moved, present).fdb).toEqual([])
  })

  test('that is gone leaves the route table first', () => {
    expect(planRemoval('flannel.1', desiredRows([HOST3], LOCAL), programmed([HOST2, HOST3]))).toEqual({
      routes: ['route delete 10.244.2.0/24 via 10.244.2.0 dev flannel.1 proto 142'],
      fdb: ['fdb delete 02:00:00:00:00:02 dev flannel.1 dst 192.0.2.2 self'],
      neighbors: ['neigh delete 10.244.2.0 dev flannel.1'],
    })
  })
})

describe('what others have put beside', () => {
  const FOREIGN: PresentRows = {
    neighbors: [
      { dst: '10.244.8.0', lladdr: '02:00:00:00:00:08', state: ['REACHABLE'] },
      { dst: '10.244.9.0', lladdr: '02:00:00:00:00:09', state: ['PERMANENT'] },
    ],
    fdb: [
      { mac: '02:00:00:00:00:08', dst: '192.0.2.8' },
      { mac: '02:00:00:00:00:09', dst: '192.0.2.9', state: 'permanent' },
      { mac: '33:33:00:00:00:01', state: 'permanent' },
    ],
    routes: [
      { dst: '10.244.8.0/24', gateway: '10.244.8.0', dev: 'flannel.1', protocol: 'static' },
      { dst: '10.244.2.0/24', dev: 'eth0', protocol: 'static', metric: 50 },
    ],
  }

  test('stays: routes and neighbours without our tag, and FDB entries of MACs that are not ours', () => {
    expect(planRemoval('flannel.1', [], FOREIGN)).toEqual({ routes: [], fdb: [], neighbors: [] })
  })

  test('hides nothing of ours that is there, and what is missing is noticed', () => {
    const own = programmed([HOST2])
    const both = {
      neighbors: [...own.neighbors, ...FOREIGN.neighbors],
      fdb: [...own.fdb, ...FOREIGN.fdb],
      routes: [...own.routes, ...FOREIGN.routes],
    }
    const nothing = { neighbors: [], fdb: [], routes: [] }
    expect(planProgram('flannel.1', desiredRows([HOST2], LOCAL), both)).toEqual({ ...nothing, blocked: new Map() })
    const { routes } = planProgram('flannel.1', desiredRows([HOST2], LOCAL), { ...both, routes: FOREIGN.routes })
    expect(commands(routes)).toEqual(['route add 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink proto 142'])
  })

  describe('a route to a peer’s subnet', () => {
    const plan = (...routes: PresentRows['routes']) => {
      const { routes: planned, blocked } = planProgram('flannel.1', desiredRows([HOST2, HOST3], LOCAL), {
        ...programmed([HOST3]),
        routes: [...programmed([HOST3]).routes, ...routes],
      })
      return { commands: commands(planned), blocked: [...blocked] }
    }
    const INTO = { dst: '10.244.2.0/24', gateway: '10.244.2.0', dev: 'flannel.1' }
    const inTheWay = (words: string) => ['10.244.2.0/24', `a route that is not ours is in the way: ${words}`]
    const REPLACED = ['route replace 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink proto 142']

    test.each([
      [{ dst: INTO.dst, dev: 'eth0', protocol: 'boot' }, '10.244.2.0/24 dev eth0 proto boot'],
      [
        { ...INTO, gateway: '192.0.2.9', dev: 'eth0', protocol: 'bird' },
        '10.244.2.0/24 via 192.0.2.9 dev eth0 proto bird',
      ],
      [{ ...INTO, gateway: '10.244.9.0', protocol: 'boot' }, '10.244.2.0/24 via 10.244.9.0 dev flannel.1 proto boot'],
      [{ dst: INTO.dst, type: 'unreachable', protocol: 'static' }, 'unreachable 10.244.2.0/24 proto static'],
    ])('of somebody else stays in its place, and the peer waits: %o', (route, words) => {
      expect(plan(route)).toEqual({ commands: [], blocked: [inTheWay(words)] })
    })

    test.each(['boot', 'unspec', undefined])('that flannel left (proto %s) becomes ours', (protocol) => {
      const left = protocol === undefined ? INTO : { ...INTO, protocol }
      expect(plan(left)).toEqual({ commands: REPLACED, blocked: [] })
    })

    test('of somebody else that leads the same way serves', () => {
      expect(plan({ ...INTO, protocol: 'static' })).toEqual({ commands: [], blocked: [] })
    })

    test('of ours that leads elsewhere is put right', () => {
      expect(plan({ ...INTO, dev: 'eth0', gateway: '192.0.2.2', protocol: '142' }).commands).toEqual(REPLACED)
    })

    test('of IPv6 with a lower metric hides ours, and that half of the peer waits alone', () => {
      const dual = peerLease('10.244.4.0/24', '192.0.2.4', '02:00:00:00:00:04', 'fd00:10:244:4::/64')
      const hiding = { dst: 'fd00:10:244:4::/64', dev: 'eth0', protocol: 'kernel', metric: 256 }
      const { routes, blocked } = planProgram('flannel.1', desiredRows([dual], LOCAL), { ...NOTHING, routes: [hiding] })
      expect(routes.map(({ subnet }) => subnet)).toEqual(['10.244.4.0/24'])
      expect([...blocked.keys()]).toEqual(['fd00:10:244:4::/64'])
    })
  })

  test('a learnt FDB entry ages, so it does not stand for one of ours', () => {
    const present = { ...programmed([HOST2]), fdb: [{ mac: '02:00:00:00:00:02', dst: '192.0.2.2', state: '' }] }
    expect(planProgram('flannel.1', desiredRows([HOST2], LOCAL), present).fdb).toHaveLength(1)
  })

  test('an FDB entry that we know to have made goes although its neighbour went before', () => {
    const present = { ...programmed([HOST2]), neighbors: [] }
    expect(planRemoval('flannel.1', [], present).fdb).toEqual([])
    expect(planRemoval('flannel.1', [], present, new Set(['02:00:00:00:00:02'])).fdb).toHaveLength(1)
  })
})

test('whatever was there before, the plan asks for each missing row once and removes no wanted one', () => {
  const lease = fc
    .record({ subnet: fc.integer({ min: 1, max: 40 }), ip: fc.integer({ min: 1, max: 250 }), mac: fc.nat(5) })
    .map(({ subnet, ip, mac }) =>
      peerLease(`10.244.${subnet}.0/24`, formatIpv4(0xc0000200 + ip), formatMac(0x020000000000 + subnet * 16 + mac)),
    )
  const leases = fc.uniqueArray(lease, { selector: (one) => one.subnet!.address })
  fc.assert(
    fc.property(leases, leases, (before, after) => {
      const rows = desiredRows(after, LOCAL)
      const present = programmed(before)
      const plan = planProgram('flannel.1', rows, present)
      const removal = planRemoval('flannel.1', rows, present)
      const kept = new Set(before.map((one) => one.subnet!.address))
      expect(plan.routes).toHaveLength(after.filter((one) => !kept.has(one.subnet!.address)).length)
      const wanted = new Set(after.map((one) => one.subnet!.address))
      expect(removal.routes).toHaveLength(before.filter((one) => !wanted.has(one.subnet!.address)).length)
      for (const { mac } of rows) expect(removal.fdb.join()).not.toContain(`delete ${mac}`)
    }),
  )
})

describe('a dual-stack peer', () => {
  const DUAL = peerLease('10.244.4.0/24', '192.0.2.4', '02:00:00:00:00:04', 'fd00:10:244:4::/64')

  test('has a neighbour and an onlink route for each half, and one FDB entry', () => {
    const plan = planProgram('flannel.1', desiredRows([DUAL], LOCAL), NOTHING)
    expect(commands(plan.neighbors)).toEqual([
      'neigh replace 10.244.4.0 lladdr 02:00:00:00:00:04 dev flannel.1 nud permanent protocol 142',
      'neigh replace fd00:10:244:4:: lladdr 02:00:00:00:00:04 dev flannel.1 nud permanent protocol 142',
    ])
    expect(commands(plan.fdb)).toEqual(['fdb replace 02:00:00:00:00:04 dev flannel.1 dst 192.0.2.4 self permanent'])
    expect(commands(plan.routes)).toEqual([
      'route add 10.244.4.0/24 via 10.244.4.0 dev flannel.1 onlink proto 142',
      'route add fd00:10:244:4::/64 via fd00:10:244:4:: dev flannel.1 onlink proto 142',
    ])
    expect(plan.routes.map(({ subnet }) => subnet)).toEqual(['10.244.4.0/24', 'fd00:10:244:4::/64'])
  })

  test('that is there already needs no command, and loses its IPv6 half alone', () => {
    const present = programmed([DUAL])
    const { neighbors, fdb, routes } = planProgram('flannel.1', desiredRows([DUAL], LOCAL), present)
    expect([neighbors, fdb, routes]).toEqual([[], [], []])
    expect(planRemoval('flannel.1', desiredRows([{ ...DUAL, ipv6Subnet: null }], LOCAL), present)).toEqual({
      routes: ['route delete fd00:10:244:4::/64 via fd00:10:244:4:: dev flannel.1 proto 142'],
      fdb: [],
      neighbors: ['neigh delete fd00:10:244:4:: dev flannel.1'],
    })
  })
})

describe('of leases that need one entry', () => {
  /** Subnets that get rows, and why others do not. */
  const judged = (...leases: Lease[]) => {
    const { rows, refused } = programmable(desiredRows(leases, LOCAL))
    return { programmed: rows.flatMap(subnetRowsOf).map(({ subnet }) => subnet), refused: Object.fromEntries(refused) }
  }

  test('by the MAC of copied machines the first gets its rows and the others are named', () => {
    const copy = peerLease('10.244.4.0/24', '192.0.2.4', '02:00:00:00:00:02', 'fd00:10:244:4::/64')
    const moved = peerLease('10.244.5.0/24', '192.0.2.2', '02:00:00:00:00:02')
    const why = 'its VTEP has the MAC of 192.0.2.2, 02:00:00:00:00:02: each node needs its own state directory'
    expect(judged(HOST2, HOST3, copy, moved)).toEqual({
      programmed: ['10.244.2.0/24', '10.244.3.0/24', '10.244.5.0/24'],
      refused: { '10.244.4.0/24': why, 'fd00:10:244:4::/64': why },
    })
  })

  test('by a first address that overlapping subnets share it is the same, also of IPv6', () => {
    const wide = peerLease('10.244.8.0/22', '192.0.2.8', '02:00:00:00:00:08', 'fd00:10:244:8::/64')
    const narrow = peerLease('10.244.8.0/24', '192.0.2.9', '02:00:00:00:00:09')
    const half = peerLease('10.244.4.0/24', '192.0.2.4', '02:00:00:00:00:04', 'fd00:10:244:8::/80')
    const why = (address: string, holder: string) => {
      return `its first address ${address} is that of ${holder} too: delete the lease that no running node holds`
    }
    expect(judged(wide, narrow, half)).toEqual({
      programmed: ['10.244.8.0/22', 'fd00:10:244:8::/64', '10.244.4.0/24'],
      refused: {
        '10.244.8.0/24': why('10.244.8.0', '10.244.8.0/22'),
        'fd00:10:244:8::/80': why('fd00:10:244:8::', 'fd00:10:244:8::/64'),
      },
    })
  })

  test('whatever they are, no two rows that are left want another value of one entry', () => {
    const lease = fc
      .record({
        third: fc.constantFrom(8, 9),
        length: fc.integer({ min: 22, max: 26 }),
        host: fc.integer({ min: 2, max: 4 }),
        mac: fc.integer({ min: 2, max: 4 }),
        half: fc.constantFrom(null, 64, 80),
      })
      .map(({ third, length, host, mac, half }) => {
        const ipv6 = half === null ? undefined : `fd00:10:244:8::/${half}`
        return peerLease(`10.244.${third}.0/${length}`, `192.0.2.${host}`, `02:00:00:00:00:0${mac}`, ipv6)
      })
    fc.assert(
      fc.property(fc.array(lease, { maxLength: 6 }), (leases) => {
        const { rows } = programmable(desiredRows(leases, LOCAL))
        const gateways = rows.flatMap(subnetRowsOf).map(({ gateway }) => gateway)
        expect(new Set(gateways).size).toBe(gateways.length)
        const ends = new Set(rows.map(({ mac, underlayAddress }) => `${mac} ${underlayAddress}`))
        expect(new Set(rows.map(({ mac }) => mac)).size).toBe(ends.size)
      }),
    )
  })

  test('a subnet that is in two of them is programmed for the first, and so not refused', () => {
    const first = peerLease('10.244.8.0/24', '192.0.2.8', '02:00:00:00:00:08', 'fd00:10:244:8::/64')
    const second = peerLease('10.244.4.0/24', '192.0.2.4', '02:00:00:00:00:04', 'fd00:10:244:8::/64')
    const programmed = ['10.244.8.0/24', 'fd00:10:244:8::/64', '10.244.4.0/24']
    expect(judged(first, second)).toEqual({ programmed, refused: {} })
  })
})
