// The kernel's VTEP as the daemon sees it: generations, who waits, and by which ways peers are reached.
import { describe, expect, test } from 'vitest'
import { leaseStatus } from '../../../src/daemon/lease-status.ts'
import { countEntries } from '../../../src/daemon/operations.ts'
import type { LocalVtep } from '../../../src/host/dataplane.ts'
import { KernelVtep } from '../../../src/host/kernel-vtep.ts'
import { silentLog } from '../../../src/log.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { RecordingTables } from '../../support/recording-tables.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

const HOST2 = peerLease('10.244.2.0/24', '192.0.2.2', '02:00:00:00:00:02')
const HOST3 = peerLease('10.244.3.0/24', '192.0.2.3', '02:00:00:00:00:03')
const LOCAL = { encapsulation: 'vxlan', deviceName: 'flannel.1' } as LocalVtep

async function started() {
  const [tables, clock] = [new RecordingTables(), new VirtualClock()]
  const vtep = new KernelVtep({ log: silentLog, tables, clock })
  await vtep.start(LOCAL)
  return { tables, clock, vtep }
}

describe('the kernel VTEP', () => {
  test('numbers the sets of peers, and keeps no books of its own', async () => {
    const { vtep } = await started()
    expect([await vtep.replacePeers([HOST2], 'test'), await vtep.replacePeers([], 'test')]).toEqual([1, 2])
    expect(vtep).not.toHaveProperty('books')
  })

  test('keeps both subnets of a peer waiting whose FDB entry is refused, since they share it', async () => {
    const { tables, vtep } = await started()
    tables.refuses = (command) => command.startsWith('fdb') && command.includes('02:00:00:00:00:02')
    const dual = peerLease('10.244.2.0/24', '192.0.2.2', '02:00:00:00:00:02', 'fd00:2::/64')
    await vtep.replacePeers([dual, HOST3], 'test')
    expect([...vtep.pendingSubnets().keys()]).toEqual(['10.244.2.0/24', 'fd00:2::/64'])
  })

  test('lets a peer wait whose place is taken, by name, and programs it when that is free again', async () => {
    const { tables, vtep, clock } = await started()
    tables.routes = [{ dst: '10.244.2.0/24', dev: 'eth0', protocol: 'static' }]
    await vtep.replacePeers([HOST2, HOST3], 'test')
    const routes = () => tables.take().filter((command) => command.startsWith('ip route'))
    expect(routes()).toEqual(['ip route add 10.244.3.0/24 via 10.244.3.0 dev flannel.1 onlink proto 142'])
    const why = 'a route that is not ours is in the way: 10.244.2.0/24 dev eth0 proto static'
    expect(Object.fromEntries(vtep.pendingSubnets())).toEqual({ '10.244.2.0/24': why })
    tables.routes = []
    await clock.advance(100)
    expect(routes()).toContain('ip route add 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink proto 142')
    expect([vtep.pendingSubnets().size, vtep.ways()]).toEqual([0, null])
  })

  test('has one of the metrics for peers that are forwarded to, and another for those that wait', async () => {
    const { tables, vtep, clock } = await started()
    const entries = () => countEntries([HOST2, HOST3].map(leaseStatus), vtep.pendingSubnets())
    tables.refuses = (command) => command.includes('10.244.2.0')
    await vtep.replacePeers([HOST2, HOST3], 'test')
    expect(entries()).toEqual({ inForce: 1, pending: 1 })
    tables.refuses = () => false
    await clock.advance(100)
    expect(entries()).toEqual({ inForce: 2, pending: 0 })
  })

  test('says whose route takes a part of a subnet, with nobody waiting', async () => {
    const { tables, vtep } = await started()
    tables.routes = [{ dst: '10.244.2.128/25', dev: 'eth0', protocol: 'static' }]
    await vtep.replacePeers([HOST2, HOST3], 'test')
    expect([...(vtep.ways() ?? [])]).toEqual([
      [
        '10.244.2.0/24',
        { way: 'tunnel', why: 'a route that is not ours takes a part of it: 10.244.2.128/25 dev eth0 proto static' },
      ],
      ['10.244.3.0/24', { way: 'tunnel', why: '' }],
    ])
    expect(vtep.pendingSubnets().size).toBe(0)
  })

  test('leaves nothing to be done once it is stopped', async () => {
    const { tables, vtep, clock } = await started()
    tables.refuses = () => true
    await vtep.replacePeers([HOST2], 'test')
    await vtep.stop('keep')
    expect(clock.timers).toBe(0)
  })
})
