// The backend host-gw over a route table in memory.
import { describe, expect, test } from 'vitest'
import { parsePrefix } from '../../../dataplane/wire/prefix.ts'
import type { LocalVtep } from '../../../src/host/dataplane.ts'
import { HostGateway } from '../../../src/host/host-gateway.ts'
import { FakeRouteTable } from '../../support/fake-route-table.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

const LOCAL = {
  ...{ encapsulation: 'none', deviceName: '', underlayInterface: 'eth0' },
  ...{ network: parsePrefix('10.244.0.0/16')!, ipv6Network: null },
} as LocalVtep
const carries = () => true
const HOST2 = peerLease('10.244.2.0/24', '192.0.2.2', '02:00:00:00:00:02')
const HOST3 = peerLease('10.244.3.0/24', '192.0.2.3', '02:00:00:00:00:03')
const TO_HOST2 = '10.244.2.0/24 via 192.0.2.2 dev eth0 proto 142'
const TO_HOST3 = '10.244.3.0/24 via 192.0.2.3 dev eth0 proto 142'

async function node() {
  const [table, clock, log] = [new FakeRouteTable(), new VirtualClock(), new RecordingLog()]
  const gateway = new HostGateway({ table, clock, log, carries, doorbell: () => ({ stop: () => {} }) })
  await gateway.start(LOCAL)
  return { gateway, table, clock, log }
}

describe('host-gw', () => {
  test('has a route by way of each peer, and takes that of a peer that left', async () => {
    const { gateway, table } = await node()
    expect(await gateway.replacePeers([HOST2, HOST3], 'test')).toBe(1)
    expect(table.lines).toEqual([TO_HOST2, TO_HOST3])
    expect(await gateway.replacePeers([HOST3], 'one left')).toBe(2)
    expect(table.lines).toEqual([TO_HOST3])
  })

  test('takes away what a former run left, once the peers are known and not before', async () => {
    const { gateway, table, clock } = await node()
    table.routes = [{ dst: '10.244.77.0/24', gateway: '192.0.2.2', dev: 'eth0', protocol: '142' }]
    await clock.advance(60_000)
    expect(table.lines).toHaveLength(1)
    await gateway.replacePeers([HOST2], 'test')
    expect(table.lines).toEqual([TO_HOST2])
  })

  test('looks at its routes every ten seconds', async () => {
    const { gateway, table, clock } = await node()
    await gateway.replacePeers([HOST2], 'test')
    table.routes = []
    await clock.advance(10_000)
    expect(table.lines).toEqual([TO_HOST2])
    expect(gateway.counters()).toEqual({ 'routes.restored': 1 })
  })

  test('a peer that is no neighbour is pending with its reason, tried again, and holds up no other', async () => {
    const { gateway, table, clock } = await node()
    table.ways.set('192.0.2.2', { gateway: '192.0.2.254' })
    await gateway.replacePeers([HOST2, HOST3], 'test')
    expect(table.lines).toEqual([TO_HOST3])
    expect([...gateway.pendingSubnets()]).toEqual([['10.244.2.0/24', expect.stringMatching(/no neighbour/)]])
    table.ways.delete('192.0.2.2')
    await clock.advance(2000)
    expect([table.lines, gateway.pendingSubnets().size]).toEqual([[TO_HOST3, TO_HOST2], 0])
  })

  test('goes over to another interface with all its routes', async () => {
    const { gateway, table } = await node()
    await gateway.replacePeers([HOST2], 'test')
    await gateway.moveUnderlay({ ...LOCAL, underlayInterface: 'eth1' })
    expect(table.lines).toEqual(['10.244.2.0/24 via 192.0.2.2 dev eth1 proto 142'])
  })

  test('leaves its routes to the next start, or nothing', async () => {
    const { gateway, table, clock } = await node()
    await gateway.replacePeers([HOST2], 'test')
    await gateway.stop('keep')
    expect([table.lines, clock.timers]).toEqual([[TO_HOST2], 0])
    await gateway.stop('remove')
    expect(table.lines).toEqual([])
  })
})
