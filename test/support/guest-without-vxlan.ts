// A host whose kernel has no vxlan, for real: our daemon in a guest, a kernel VTEP outside, traffic between the two.
// For the short form in test/netns and the whole in test/uml. The VTEP outside is made of `ip` and `bridge` words, and
// its lease is written by hand: nothing of ours is on that side.
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, onTestFinished, vi } from 'vitest'
import type { DaemonStatus } from '../../src/daemon/status-file.ts'
import { mainProgram } from '../../src/lab/daemon-process.ts'
import { CONFIG } from './daemon-under-test.ts'
import { PREFIX } from './etcd-network.ts'
import { EtcdServer } from './etcd-server.ts'
import { ip } from './own-namespace.ts'
import { ROOT } from './source-tree.ts'
import {
  guestObstacle,
  mustRunIn,
  OUTSIDE,
  type Place,
  type RunningProgram,
  runIn,
  UmlGuest,
  UNDERLAY_DEVICE,
} from './uml-guest.ts'

const OVERLAY_DEVICE = 'flannel.1'
export const OUTSIDE_OVERLAY = '10.244.1.0'
const OUTSIDE_MAC = '02:00:00:00:00:01'
const OUTSIDE_LEASE = `{"PublicIP":"${OUTSIDE}","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"${OUTSIDE_MAC}"}}`
/** In the guest's memory. */
const STORE = '/run/store'
export const STATE = '/run/state'
export const SUBNET_FILE = '/run/subnet.env'
const STATUS = `${STATE}/status.json`
/** A start takes 5 s in a guest, and several times that when the machine is busy. */
const READY_LIMIT_MS = 120_000
/** More than boot and start may take together: whoever runs into a limit of theirs still cleans up. */
const HOOK_LIMIT_MS = 300_000
const TRANSFER = join(ROOT, 'test/support/tcp-transfer.mjs')
const PORT = 7000

export interface GuestHost {
  readonly guest: UmlGuest
  readonly daemon: RunningProgram
  /** The daemon's store, when it is one. */
  readonly etcd: EtcdServer | null
  /** The guest's overlay address. */
  readonly overlay: string
}

/**
 * Boots the guest before the tests around the call, with the daemon running; `null` where no guest can be booted. Its
 * store is a directory in the guest, or an etcd outside of it; `more` are words of the daemon.
 */
export function guestHost(store: 'file' | 'etcd' = 'file', more: readonly string[] = []): () => GuestHost | null {
  let host: GuestHost | null = null
  let guest: UmlGuest | null = null
  let etcd: EtcdServer | null = null
  beforeAll(async () => {
    if (guestObstacle() !== null) return
    guest = await UmlGuest.boot()
    if (store === 'etcd') etcd = await etcdOutside(guest)
    host = await startHost(guest, etcd, more)
  }, HOOK_LIMIT_MS)
  afterAll(async () => {
    await etcd?.stop()
    await guest?.stop()
  })
  afterEach((context) => {
    if (context.task.result?.state !== 'fail') return
    console.log(guest?.console, host?.daemon.output.stderr.split('\n').slice(-12).join('\n'))
  })
  return () => host
}

async function startHost(guest: UmlGuest, etcd: EtcdServer | null, more: readonly string[]): Promise<GuestHost> {
  if (etcd === null) await prepareStore(guest)
  const daemon = await startDaemonIn(guest, 'vec0', [...(etcd === null ? [] : ['--etcd-endpoints', etcd.url]), ...more])
  const { node, lease } = (await statusIn(guest))!
  makeKernelVtep(guest, { overlay: node!.overlayAddress, subnet: lease!.subnet, mac: node!.mac })
  return { guest, daemon, etcd, overlay: node!.overlayAddress }
}

/** Starts a daemon with that underlay interface, on the state of the one before, and waits until it forwards. */
export async function startDaemonIn(
  guest: UmlGuest,
  underlay: string,
  more: readonly string[] = [],
): Promise<RunningProgram> {
  await mustRunIn(guest, ['rm', '-f', STATUS])
  const daemon = guest.start([
    ...[process.execPath, mainProgram(), 'run', '--iface', underlay],
    ...(more.includes('--etcd-endpoints') ? [] : ['--store', `file:${STORE}`]),
    ...['--state-dir', STATE, '--subnet-file', SUBNET_FILE, '--log-format', 'json', ...more],
  ])
  const look = async () => {
    if (daemon.output.exitCode !== null) throw new Error(`the daemon ended: ${daemon.output.stderr}`)
    const status = await statusIn(guest)
    return status?.state === 'ready' && status.peers.length === 1
  }
  try {
    await vi.waitUntil(look, { timeout: READY_LIMIT_MS, interval: 200 })
  } catch (error) {
    // The hook that calls fails without a test whose failure would print this.
    throw new Error(`not ready: ${JSON.stringify(await statusIn(guest))}\n${daemon.output.stderr}`, { cause: error })
  }
  return daemon
}

/** Writes config and the lease of the VTEP outside into a store in the guest. */
async function prepareStore(guest: UmlGuest): Promise<void> {
  const script = `mkdir -p ${STORE}/subnets && cd ${STORE} && printf %s "$1" >config && printf %s "$2" >subnets/10.244.1.0-24`
  await mustRunIn(guest, ['bash', '-c', script, 'prepare', JSON.stringify(CONFIG), OUTSIDE_LEASE])
}

/** On the guest's underlay, with the same in it. */
async function etcdOutside(guest: UmlGuest): Promise<EtcdServer> {
  const { namespace } = guest
  const etcd = await EtcdServer.start({ namespace, address: OUTSIDE, clientPort: 2379, peerPort: 2380 })
  etcd.ctl('put', `${PREFIX}/config`, JSON.stringify(CONFIG))
  etcd.ctl('put', `${PREFIX}/subnets/10.244.1.0-24`, OUTSIDE_LEASE)
  return etcd
}

function makeKernelVtep(guest: UmlGuest, peer: { overlay: string; subnet: string; mac: string }): void {
  const inside = (...words: string[]) => ip('-n', guest.namespace, ...words)
  const vxlan = ['type', 'vxlan', 'id', '1', 'local', OUTSIDE, 'dev', UNDERLAY_DEVICE, 'dstport', '8472', 'nolearning']
  inside('link', 'add', OVERLAY_DEVICE, 'address', OUTSIDE_MAC, 'mtu', '1450', ...vxlan)
  inside('address', 'add', `${OUTSIDE_OVERLAY}/32`, 'dev', OVERLAY_DEVICE)
  inside('link', 'set', OVERLAY_DEVICE, 'up')
  inside('neigh', 'add', peer.overlay, 'lladdr', peer.mac, 'dev', OVERLAY_DEVICE, 'nud', 'permanent')
  const fdb = ['fdb', 'add', peer.mac, 'dev', OVERLAY_DEVICE, 'dst', guest.address]
  execFileSync('bridge', ['-n', guest.namespace, ...fdb])
  inside('route', 'add', peer.subnet, 'via', peer.overlay, 'dev', OVERLAY_DEVICE, 'onlink', 'src', OUTSIDE_OVERLAY)
}

/** Release of the guest's kernel. */
export async function releaseOf(guest: UmlGuest): Promise<string> {
  return (await mustRunIn(guest, ['uname', '-r'])).trim()
}

/** The daemon's status; `null` while there is none. */
export async function statusIn(guest: UmlGuest): Promise<DaemonStatus | null> {
  const { exitCode, stdout } = await runIn(guest, ['cat', STATUS])
  return exitCode === 0 ? (JSON.parse(stdout) as DaemonStatus) : null
}

/** What the daemon found usable when it started: the fields of its log line. */
export function foundFeatures(daemon: RunningProgram): Readonly<Record<string, unknown>> {
  const line = daemon.output.stderr.split('\n').find((text) => text.includes('"dataplane-started"'))
  return line === undefined ? {} : (JSON.parse(line) as Record<string, unknown>)
}

/** Sends so many MiB to an address of `to`, demands the right SHA-256 on arrival, and gives MiB a second. */
export async function expectIntact(from: Place, to: Place, address: string, mebibytes: number): Promise<number> {
  const receiver = to.start([process.execPath, TRANSFER, 'receive', String(PORT)])
  const listening = () => receiver.output.stdout !== '' || receiver.output.exitCode !== null
  await vi.waitUntil(listening, { timeout: READY_LIMIT_MS, interval: 20 })
  const start = performance.now()
  const sender = from.start([process.execPath, TRANSFER, 'send', address, String(PORT), String(mebibytes), '0'])
  onTestFinished(() => {
    for (const program of [receiver, sender]) program.kill()
  })
  const [sent, received] = await Promise.all([sender.ended, receiver.ended])
  const seconds = (performance.now() - start) / 1000
  expect(sent.stderr + received.stderr).toBe('')
  const [went, digest] = [sent, received].map(({ stdout }) => stdout.trimEnd().split('\n').at(-1))
  expect(digest).toBe(went)
  expect(digest).toMatch(new RegExp(`^${mebibytes * 2 ** 20} [0-9a-f]{64}$`))
  return mebibytes / seconds
}
