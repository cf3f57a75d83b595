// A machine in memory on which one daemon after another can run: store, clock, log and files live on, the rest does
// not.
import { existsSync, readFileSync } from 'node:fs'
import { onTestFinished } from 'vitest'
import { parseIpv4 } from '../../dataplane/wire/address.ts'
import type { AgentOptions } from '../../src/daemon/agent-options.ts'
import { NodeAgent } from '../../src/daemon/node-agent.ts'
import { StateDirectory } from '../../src/daemon/state-directory.ts'
import type { UnderlayInterface } from '../../src/host/underlay-interface.ts'
import type { LeaseStore } from '../../src/store/lease-store.ts'
import { MemoryLeases } from '../../src/store/memory.ts'
import { FakeDataplane } from './fake-dataplane.ts'
import { FakeHostWork } from './fake-host-work.ts'
import { RecordingLog } from './recording-log.ts'
import { seededRandom } from './seeded-random.ts'
import { temporaryDirectory } from './temporary-directory.ts'
import { VirtualClock } from './virtual-clock.ts'

export const CONFIG = '{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}'
export const ETH0 = {
  name: 'eth0',
  index: 2,
  address: parseIpv4('192.0.2.1')!,
  mtuBytes: 1500,
  how: 'default route',
  passedOver: [],
} satisfies UnderlayInterface

/** Call inside a test; what is still running ends with it. */
export function makeHost(config: string | null = CONFIG) {
  const directory = temporaryDirectory()
  const clock = new VirtualClock()
  const shared = new MemoryLeases(clock, config)
  const log = new RecordingLog()
  const subnetFile = `${directory}/run/subnet.env`
  const random = seededRandom(3)
  const env = () => (existsSync(subnetFile) ? readFileSync(subnetFile, 'utf8') : null)
  function boot(changes: Partial<AgentOptions> = {}) {
    const dataplane = new FakeDataplane()
    const store = shared.open(random, (sentence) => log.warn('previous-subnet-unavailable', sentence))
    const options: AgentOptions = {
      store,
      dataplane,
      state: new StateDirectory(`${directory}/state`, log),
      clock,
      log,
      random,
      selectUnderlay: async () => ETH0,
      claimIdentity: async () => {},
      hostWork: new FakeHostWork(),
      ipMasq: false,
      subnetFile,
      renewMarginMs: 3600_000,
      ...changes,
    }
    const agent = new NodeAgent(options)
    onTestFinished(() => agent.stop('keep'))
    return { agent, dataplane }
  }
  return { directory, clock, shared, log, subnetFile, env, boot }
}

export type Host = ReturnType<typeof makeHost>

/** A node that is through with its start. */
export async function started(host: Host, changes: Partial<AgentOptions> = {}) {
  const node = host.boot(changes)
  await node.agent.start()
  return node
}

/** The same store, but reached over a network. */
export function remote(store: LeaseStore): LeaseStore {
  return {
    name: store.name,
    renewal: store.renewal,
    remote: true,
    readNetworkConfig: () => store.readNetworkConfig(),
    awaitNetworkConfig: (signal) => store.awaitNetworkConfig(signal),
    acquire: (request) => store.acquire(request),
    renew: (lease) => store.renew(lease),
    release: (lease) => store.release(lease),
    read: (subnet) => store.read(subnet),
    watch: (signal) => store.watch(signal),
    publishReady: () => store.publishReady(),
    close: () => store.close(),
  }
}
