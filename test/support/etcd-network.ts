// Hosts and etcd members on one underlay: a switch in a namespace of its own, everybody with `eth0` on it. Daemons with
// etcd as their store, a kernel VTEP whose lease is written by hand, and a ping that counts what it loses.
import { execFileSync } from 'node:child_process'
import { expect, onTestFinished } from 'vitest'
import { mainProgram } from '../../src/lab/daemon-process.ts'
import { silentLog } from '../../src/log.ts'
import { EtcdConnection } from '../../src/store/etcd/connection.ts'
import { type Host, RunningDaemon } from './daemon-under-test.ts'
import { etcdOptionsFor } from './etcd-harness.ts'
import { CLIENT_PORT, EtcdServer, startCluster } from './etcd-server.ts'
import { ip, ownNamespace } from './own-namespace.ts'
import { temporaryDirectory } from './temporary-directory.ts'

export const PREFIX = '/coreos.com/network'
export const CONFIG = '{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}'

export interface Place {
  readonly namespace: string
  readonly address: string
}

/** A switch to plug namespaces into. Call inside a test. */
export class Underlay {
  readonly #switch = ownNamespace()
  readonly #directory = temporaryDirectory()
  #ports = 0

  constructor() {
    ip('-n', this.#switch, 'link', 'add', 'br0', 'type', 'bridge')
    ip('-n', this.#switch, 'link', 'set', 'br0', 'up')
  }

  /** A namespace at `192.0.2.<last>`. */
  place(last: number): Place {
    const namespace = ownNamespace()
    const port = `port${this.#ports++}`
    ip('-n', this.#switch, 'link', 'add', port, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace)
    ip('-n', this.#switch, 'link', 'set', port, 'master', 'br0', 'up')
    ip('-n', namespace, 'address', 'add', `192.0.2.${last}/24`, 'dev', 'eth0')
    ip('-n', namespace, 'link', 'set', 'eth0', 'up')
    return { namespace, address: `192.0.2.${last}` }
  }

  host(last: number): Host {
    const path = (name: string) => `${this.#directory}/${name}${last}`
    return { ...this.place(last), store: 'etcd', stateDirectory: path('state'), subnetFile: path('subnet.env') }
  }

  /** One member at 192.0.2.101, with the network config. */
  async etcd(): Promise<EtcdServer> {
    const server = await EtcdServer.launch({ ...this.place(101), clientPort: CLIENT_PORT, peerPort: 2380 })
    onTestFinished(() => server.stop())
    await server.ready()
    server.ctl('put', `${PREFIX}/config`, CONFIG)
    return server
  }

  /** A client in the test process, by way of a port on the underlay: 192.0.2.254, in the namespace of the test run. */
  connect(server: EtcdServer): EtcdConnection {
    const device = `flx${process.pid}`
    ip('link', 'add', device, 'type', 'veth', 'peer', 'name', 'test', 'netns', this.#switch)
    onTestFinished(() => void ip('link', 'delete', device))
    ip('-n', this.#switch, 'link', 'set', 'test', 'master', 'br0', 'up')
    ip('address', 'add', '192.0.2.254/24', 'dev', device)
    ip('link', 'set', device, 'up')
    const calls = new EtcdConnection(etcdOptionsFor([server.url], PREFIX), 'test', silentLog)
    onTestFinished(() => calls.close())
    return calls
  }

  /** Three members at 192.0.2.101 to 103, with the network config. */
  async cluster(): Promise<{ servers: EtcdServer[]; places: Place[] }> {
    const places = [101, 102, 103].map((last) => this.place(last))
    const servers = await startCluster(places)
    onTestFinished(async () => {
      for (const server of servers) await server.stop()
    })
    servers[0]!.ctl('put', `${PREFIX}/config`, CONFIG)
    return { servers, places }
  }
}

export function startOnEtcd(
  host: Host,
  servers: readonly Pick<EtcdServer, 'url'>[],
  more: readonly string[] = [],
): RunningDaemon {
  return new RunningDaemon(host, [
    ...[process.execPath, mainProgram(), 'run', '--iface', 'eth0'],
    ...['--etcd-endpoints', servers.map(({ url }) => url).join(',')],
    ...['--state-dir', host.stateDirectory, '--subnet-file', host.subnetFile, ...more],
  ])
}

const KERNEL_MAC = '02:00:00:00:00:4d'
export const KERNEL_OVERLAY = '10.244.77.0'

/** Two daemons and a kernel VTEP that know each other, and their etcd. */
export async function networkOnEtcd(underlay: Underlay) {
  const [first, second, third] = [underlay.host(1), underlay.host(2), underlay.place(3)]
  const etcd = await underlay.etcd()
  etcd.ctl('put', ...makeKernelVtep(third, 77, KERNEL_MAC).lease)
  const [one, two] = [startOnEtcd(first, [etcd]), startOnEtcd(second, [etcd])]
  await Promise.all([one.ready(2), two.ready(2)])
  for (const daemon of [one, two]) tellKernel(third, daemon)
  return { first, second, third, etcd, one, two }
}

/** Waits for a daemon's state, which is due within `dueMs`; fails at three times that. */
export async function stateOf(daemon: RunningDaemon, state: string, dueMs: number): Promise<void> {
  await expect.poll(() => daemon.status?.state, { timeout: 3 * dueMs, interval: 20 }).toBe(state)
}

/** What a daemon's lease looks like in etcd: key without the prefix, and value. */
export function leaseOf(daemon: RunningDaemon): { key: string; value: string } {
  const { subnet, publicIp, vtepMac } = daemon.status!.lease!
  return { key: subnet.replace('/', '-'), value: flannelValue(publicIp, vtepMac!) }
}

/** A vxlan lease's value as flannel writes it, spelt out. */
export function flannelValue(publicIp: string, mac: string): string {
  return `{"PublicIP":"${publicIp}","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"${mac}"}}`
}

/** A kernel's own VTEP on a place, made of `ip` and `bridge` words: 10.244.<third>.0. */
export function makeKernelVtep(place: Place, third: number, mac: string): { lease: [key: string, value: string] } {
  const inside = (...words: string[]) => ip('-n', place.namespace, ...words)
  const vxlan = ['type', 'vxlan', 'id', '1', 'local', place.address, 'dev', 'eth0', 'dstport', '8472', 'nolearning']
  inside('link', 'add', 'flannel.1', 'address', mac, 'mtu', '1450', ...vxlan)
  inside('address', 'add', `10.244.${third}.0/32`, 'dev', 'flannel.1')
  inside('link', 'set', 'flannel.1', 'up')
  return { lease: [`${PREFIX}/subnets/10.244.${third}.0-24`, flannelValue(place.address, mac)] }
}

/** What flanneld would tell the kernel of a daemon's node. */
export function tellKernel(place: Place, daemon: RunningDaemon): void {
  const { node, lease } = daemon.status!
  const inside = (...words: string[]) => ip('-n', place.namespace, ...words)
  inside('neigh', 'replace', node!.overlayAddress, 'lladdr', node!.mac, 'dev', 'flannel.1', 'nud', 'permanent')
  const fdb = ['fdb', 'replace', node!.mac, 'dev', 'flannel.1', 'dst', lease!.publicIp]
  execFileSync('bridge', ['-n', place.namespace, ...fdb])
  inside('route', 'replace', lease!.subnet, 'via', node!.overlayAddress, 'dev', 'flannel.1', 'onlink')
}

export const overlayAddressOf = (daemon: RunningDaemon) => daemon.status?.node?.overlayAddress ?? ''

/** From now on a place's connections to etcd are reset, until the returned function is called. */
export function rejectEtcd(place: Place): () => void {
  return filter(place, ['output'], `tcp dport ${CLIENT_PORT} reject with tcp reset`)
}

/** From now on an etcd member there neither hears the others nor is heard by them, while clients reach it. */
export function cutPeers(place: Place): () => void {
  return filter(place, BOTH_WAYS, 'tcp dport 2380 drop; tcp sport 2380 drop')
}

/** From now on nothing arrives at a place, or leaves it, that is of etcd. */
export function dropEtcd(place: Place): () => void {
  return filter(place, BOTH_WAYS, `tcp dport { ${CLIENT_PORT}, 2380 } drop; tcp sport { ${CLIENT_PORT}, 2380 } drop`)
}

/** What stands in the way of answers alone lets everything in that was sent before. */
const BOTH_WAYS = ['input', 'output'] as const

function filter(place: Place, hooks: readonly ('input' | 'output')[], rules: string): () => void {
  const nft = (words: string) => execFileSync('ip', ['netns', 'exec', place.namespace, 'nft', words])
  const chains = hooks.flatMap((hook) => [
    `add chain inet cut ${hook} { type filter hook ${hook} priority 0 ; }`,
    ...rules.split('; ').map((rule) => `add rule inet cut ${hook} ${rule}`),
  ])
  nft(['add table inet cut', ...chains].join('; '))
  return () => void nft('delete table inet cut')
}

/** Addresses of the etcd members that a place has connections to. */
export function etcdPeersOf(place: Place): string[] {
  const lines = ip(
    'netns',
    'exec',
    place.namespace,
    'ss',
    '-Htn',
    'state',
    'established',
    'dport',
    '=',
    `:${CLIENT_PORT}`,
  )
  return [...lines.matchAll(new RegExp(`(\\S+):${CLIENT_PORT}\\s`, 'g'))].map(([, address]) => address!)
}
