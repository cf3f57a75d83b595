// The kernel dataplane when somebody else has been at its device or its entries: what it does, and what it says.
import { beforeEach, describe, expect, test, vi } from 'vitest'
import type { ChangeWatchOptions } from '../../../src/host/change-watch.ts'
import type { LocalVtep } from '../../../src/host/dataplane.ts'
import { KernelVtep } from '../../../src/host/kernel-vtep.ts'
import type { DeviceWork } from '../../../src/host/kernel-vtep-device.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { RecordingLog } from '../../support/recording-log.ts'

const host = vi.hoisted(() => ({
  mend: async () => {},
  work: { what: 'kept', why: [] } as DeviceWork,
  failure: null as Error | null,
  commands: [] as string[],
  present: { neighbors: [] as object[], fdb: [] as object[], routes: [] as object[] },
}))
vi.mock('../../../src/host/kernel-vtep-device.ts', () => ({
  ensureKernelDevice: async () => {
    if (host.failure !== null) throw host.failure
    return host.work
  },
}))
vi.mock('../../../src/host/change-watch.ts', () => ({
  ChangeWatch: class {
    constructor(options: ChangeWatchOptions) {
      host.mend = options.mend
    }
    stop() {}
  },
}))
vi.mock('../../../src/host/kernel-tables.ts', () => ({
  kernelTables: () => ({
    read: async () => host.present,
    apply: async (tool: string, commands: readonly string[]) => {
      host.commands.push(...commands.map((command) => `${tool} ${command}`))
      return []
    },
  }),
}))
vi.mock('../../../src/host/carried-address.ts', () => ({ carriesAddress: () => true }))

const LOCAL = { encapsulation: 'vxlan', deviceName: 'flannel.1' } as LocalVtep
const PEER = peerLease('10.244.2.0/24', '192.0.2.2', '02:00:00:00:00:02')
const OTHER = peerLease('10.244.3.0/24', '192.0.2.3', '02:00:00:00:00:03')
const STALE_ROUTE = { dst: '10.244.9.0/24', gateway: '10.244.9.0', dev: 'flannel.1', protocol: '142' }

beforeEach(() => {
  Object.assign(host, { work: { what: 'kept', why: [] }, failure: null, commands: [] })
  host.present = { neighbors: [], fdb: [], routes: [] }
})

async function started() {
  const log = new RecordingLog()
  const vtep = new KernelVtep({ log })
  await vtep.start(LOCAL)
  return { log, vtep }
}

describe('the kernel dataplane', () => {
  test('takes nothing of a former run away before it knows the peers', async () => {
    const { vtep } = await started()
    host.present.routes.push(STALE_ROUTE)
    await host.mend()
    expect(host.commands).toEqual([])
    await vtep.replacePeers([], 'first leases')
    expect(host.commands).toEqual([expect.stringContaining('route delete 10.244.9.0/24')])
  })

  test('puts back what somebody else took, and says so once it had been there', async () => {
    const { log, vtep } = await started()
    await vtep.replacePeers([PEER], 'first leases')
    expect(log.of('peers-restored')).toEqual([])
    host.commands.length = 0
    await host.mend()
    expect(host.commands).toHaveLength(3)
    expect(log.of('peers-restored').map(({ fields }) => fields)).toEqual([
      { peers: 1, first: expect.stringContaining('route add 10.244.2.0/24') },
    ])
  })

  test('does not call it mending when a route of somebody else lets a peer go, and says so of the others', async () => {
    const { log, vtep } = await started()
    host.present.routes.push({ dst: '10.244.2.0/24', dev: 'eth0', protocol: 'static' })
    await vtep.replacePeers([PEER, OTHER], 'first leases')
    expect(log.of('peer-pending').map(({ message }) => message)).toEqual([
      expect.stringContaining('a route that is not ours is in the way: 10.244.2.0/24 dev eth0 proto static'),
    ])
    host.present.routes.length = 0
    await host.mend()
    expect(log.of('peer-programmed')).toHaveLength(1)
    expect(log.of('peers-restored').map(({ fields }) => fields)).toEqual([
      { peers: 1, first: expect.stringContaining('route add 10.244.3.0/24') },
    ])
  })

  test('says of a device that came back only that, and programs all peers', async () => {
    const { log, vtep } = await started()
    await vtep.replacePeers([PEER], 'first leases')
    host.commands.length = 0
    host.work = { what: 'made', why: [] }
    await host.mend()
    expect(host.commands).toHaveLength(3)
    expect(log.lines.map(({ event }) => event)).toEqual(['device-restored'])
  })

  test('says what was wrong with a device that it put right', async () => {
    const { log } = await started()
    host.work = { what: 'mended', why: ['link set dev flannel.1 mtu 1450'] }
    await host.mend()
    expect(log.of('device-restored')[0]?.fields).toEqual({ work: 'mended', why: 'link set dev flannel.1 mtu 1450' })
  })

  test('waits for a device that cannot come back, without touching the tables', async () => {
    const { log, vtep } = await started()
    await vtep.replacePeers([PEER], 'first leases')
    host.commands.length = 0
    host.failure = new Error('Cannot find device "eth0"')
    await host.mend()
    expect([host.commands, log.of('device-lost').length]).toEqual([[], 1])
  })

  test('tells why a device of a former run was made anew', async () => {
    host.work = { what: 'made-anew', why: ['group policy false, wanted true'] }
    const { log } = await started()
    expect(log.of('device-recreated')[0]?.message).toContain('group policy false, wanted true')
  })
})
