// The kernel VTEP against tables that refuse: nobody waits for a peer that cannot be programmed, and it is tried again.
import { describe, expect, test } from 'vitest'
import type { Timer } from '../../../src/clock.ts'
import { countEntries } from '../../../src/daemon/operations.ts'
import { leaseStatus } from '../../../src/daemon/status-file.ts'
import type { LocalVtep } from '../../../src/host/dataplane.ts'
import type { BatchFailure, IpTool } from '../../../src/host/ip.ts'
import { deviceCounters, type KernelTables } from '../../../src/host/kernel-tables.ts'
import { KernelVtep } from '../../../src/host/kernel-vtep.ts'
import type { PresentRows } from '../../../src/host/kernel-vtep-plan.ts'
import { silentLog } from '../../../src/log.ts'
import { peerLease } from '../../support/peer-lease.ts'

const HOST2 = peerLease('10.244.2.0/24', '192.0.2.2', '02:00:00:00:00:02')
const HOST3 = peerLease('10.244.3.0/24', '192.0.2.3', '02:00:00:00:00:03')
const LOCAL = { encapsulation: 'vxlan', deviceName: 'flannel.1' } as LocalVtep

/** Tables that write down every command and refuse those that `refuses` points at. */
class RecordingTables implements KernelTables {
  readonly commands: string[] = []
  refuses: (command: string) => boolean = () => false
  readable = true
  routes: PresentRows['routes'] = []

  async read(): Promise<PresentRows> {
    if (!this.readable) throw new Error('Device "flannel.1" does not exist.')
    return { neighbors: [], fdb: [], routes: this.routes }
  }

  async apply(tool: IpTool, commands: readonly string[]): Promise<BatchFailure[]> {
    this.commands.push(...commands.map((command) => `${tool} ${command}`))
    return commands.flatMap((command, index) =>
      this.refuses(command) ? [{ index, message: 'No buffer space available' }] : [],
    )
  }

  take(): string[] {
    return this.commands.splice(0)
  }
}

/** A clock whose timers fire when the test says so. */
class HandClock {
  readonly delays: number[] = []
  #fire: (() => void) | null = null
  wallMs = () => 0
  bootMs = () => 0

  after(delayMs: number, fire: () => void): Timer {
    this.delays.push(delayMs)
    this.#fire = fire
    return { cancel: () => (this.#fire = null) }
  }

  get waiting(): boolean {
    return this.#fire !== null
  }

  fire(): void {
    const fire = this.#fire
    this.#fire = null
    fire?.()
  }
}

async function started() {
  const tables = new RecordingTables()
  const clock = new HandClock()
  const vtep = new KernelVtep({ log: silentLog, tables, clock })
  await vtep.start(LOCAL)
  /** Fires the retry and waits until its pass is over. */
  const retry = async () => {
    clock.fire()
    for (let turn = 0; turn < 20; turn++) await Promise.resolve()
  }
  return { tables, clock, vtep, retry }
}

describe('the kernel VTEP', () => {
  test('fills neighbours, then FDB, then routes', async () => {
    const { tables, vtep } = await started()
    expect(await vtep.replacePeers([HOST2, HOST3], 'test')).toBe(1)
    expect(tables.commands.map((command) => command.split(' ').slice(0, 2).join(' '))).toEqual([
      'ip neigh',
      'ip neigh',
      'bridge fdb',
      'bridge fdb',
      'ip route',
      'ip route',
    ])
    expect(vtep.pendingPeers()).toBe(0)
  })

  test('programs the others when one peer fails, without a route to the failed one', async () => {
    const { tables, vtep, clock } = await started()
    tables.refuses = (command) => command.includes('neigh replace 10.244.2.0')
    await vtep.replacePeers([HOST2, HOST3], 'test')
    const routes = tables.commands.filter((command) => command.startsWith('ip route'))
    expect(routes).toEqual(['ip route add 10.244.3.0/24 via 10.244.3.0 dev flannel.1 onlink proto 142'])
    expect(vtep.pendingPeers()).toBe(1)
    expect([...vtep.pendingSubnets()]).toEqual(['10.244.2.0/24'])
    expect(clock.waiting).toBe(true)
  })

  test('tries a peer again, ever later, until the kernel takes it', async () => {
    const { tables, vtep, clock, retry } = await started()
    let left = 3
    tables.refuses = (command) => command.startsWith('neigh replace 10.244.2.0') && left-- > 0
    await vtep.replacePeers([HOST2], 'test')
    await retry()
    await retry()
    expect(vtep.pendingPeers()).toBe(1)
    await retry()
    expect(vtep.pendingPeers()).toBe(0)
    expect(clock.waiting).toBe(false)
    expect(clock.delays).toEqual([100, 200, 400])
    expect(tables.commands.at(-1)).toContain('route add 10.244.2.0/24')
  })

  test('forgets a pending peer that has left', async () => {
    const { tables, vtep } = await started()
    tables.refuses = () => true
    await vtep.replacePeers([HOST2], 'test')
    expect(vtep.pendingPeers()).toBe(1)
    tables.refuses = () => false
    await vtep.replacePeers([], 'test')
    expect(vtep.pendingPeers()).toBe(0)
  })

  test('counts all peers as pending while the tables cannot be read, and recovers', async () => {
    const { tables, vtep, retry } = await started()
    tables.readable = false
    await vtep.replacePeers([HOST2, HOST3], 'test')
    expect(vtep.pendingPeers()).toBe(2)
    tables.readable = true
    await retry()
    expect(vtep.pendingPeers()).toBe(0)
  })

  test('lets a peer wait whose place is taken, by name, and programs it when that is free again', async () => {
    const { tables, vtep, retry } = await started()
    tables.routes = [{ dst: '10.244.2.0/24', dev: 'eth0', protocol: 'static' }]
    await vtep.replacePeers([HOST2, HOST3], 'test')
    const routes = () => tables.take().filter((command) => command.startsWith('ip route'))
    expect(routes()).toEqual(['ip route add 10.244.3.0/24 via 10.244.3.0 dev flannel.1 onlink proto 142'])
    expect([vtep.pendingPeers(), [...vtep.pendingSubnets()]]).toEqual([1, ['10.244.2.0/24']])
    expect([...(vtep.ways() ?? [])]).toEqual([
      [
        '10.244.2.0/24',
        { way: 'none', why: 'a route that is not ours is in the way: 10.244.2.0/24 dev eth0 proto static' },
      ],
      ['10.244.3.0/24', { way: 'tunnel', why: '' }],
    ])
    tables.routes = []
    await retry()
    expect(routes()).toContain('ip route add 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink proto 142')
    expect([vtep.pendingPeers(), vtep.ways()]).toEqual([0, null])
  })

  test('has one of the metrics for peers that are forwarded to, and another for those that wait', async () => {
    const { tables, vtep, retry } = await started()
    const entries = () => countEntries([HOST2, HOST3].map(leaseStatus), vtep.pendingSubnets())
    tables.refuses = (command) => command.includes('10.244.2.0')
    await vtep.replacePeers([HOST2, HOST3], 'test')
    expect(entries()).toEqual({ inForce: 1, pending: 1 })
    tables.refuses = () => false
    await retry()
    expect(entries()).toEqual({ inForce: 2, pending: 0 })
  })

  test('takes a wrong route of ours away where the kernel does not replace it, in the same pass', async () => {
    const { tables, vtep } = await started()
    tables.routes = [{ dst: '10.244.2.0/24', dev: 'eth0', protocol: '142' }]
    tables.refuses = (command) => command.startsWith('route replace')
    await vtep.replacePeers([HOST2], 'test')
    const words = 'via 10.244.2.0 dev flannel.1 onlink proto 142'
    expect(tables.commands.filter((command) => command.startsWith('ip route'))).toEqual([
      `ip route replace 10.244.2.0/24 ${words}`,
      'ip route delete 10.244.2.0/24 dev eth0 proto 142',
      `ip route add 10.244.2.0/24 ${words}`,
    ])
    expect(vtep.pendingPeers()).toBe(0)
  })

  test('does nothing more once it is stopped', async () => {
    const { tables, vtep, clock, retry } = await started()
    tables.refuses = () => true
    await vtep.replacePeers([HOST2], 'test')
    await vtep.stop('keep')
    tables.take()
    await retry()
    expect(clock.waiting).toBe(false)
    expect(tables.commands).toEqual([])
  })
})

test('the device’s counters are read by column, and an absent device has none', () => {
  const table = [
    'Inter-|   Receive                                                |  Transmit',
    ' face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier',
    'flannel.10: 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9',
    ' flannel.1: 100 2 3 4 0 0 0 0 500 6 7 8 0 0 0 0',
  ].join('\n')
  expect(deviceCounters('flannel.1', table)).toEqual({
    'inbound.bytes.passed': 100,
    'inbound.packets.passed': 2,
    'inbound.errors': 3,
    'inbound.dropped': 4,
    'outbound.bytes.passed': 500,
    'outbound.packets.passed': 6,
    'outbound.errors': 7,
    'outbound.dropped': 8,
  })
  expect(deviceCounters('flannel.7', table)).toEqual({})
})

test('of copied machines, which have one MAC, one is programmed and the other waits, without a quarrel over the entry', async () => {
  const { tables, vtep } = await started()
  await vtep.replacePeers([HOST2, peerLease('10.244.4.0/24', '192.0.2.4', '02:00:00:00:00:02')], 'first leases')
  expect(tables.take().filter((command) => command.startsWith('bridge'))).toEqual([
    'bridge fdb replace 02:00:00:00:00:02 dev flannel.1 dst 192.0.2.2 self permanent',
  ])
  expect([...vtep.pendingSubnets()]).toEqual(['10.244.4.0/24'])
})
