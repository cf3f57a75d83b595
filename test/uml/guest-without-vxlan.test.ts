// The daemon on a kernel without vxlan, at full size: transfers both ways, also over a bad network, with the plain
// driver, and over a device without checksum offload. Figures are printed for the record; a guest is slow and proves
// function, not speed.
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import type { BlastResult } from '../../bench/netns/blast.ts'
import { blastProgram, SMALL_PACKET_BYTES } from '../../bench/netns/load.ts'
import { isKernelAtLeast } from '../../dataplane/io/kernel-release.ts'
import { mainProgram } from '../../src/lab/daemon-process.ts'
import {
  expectIntact,
  guestHost,
  OUTSIDE_OVERLAY,
  releaseOf,
  startDaemonIn,
  statusIn,
} from '../support/guest-without-vxlan.ts'
import { bootedHost, describeGuestWithoutVxlan, doctorIn, placesInGuest } from '../support/guest-without-vxlan-tests.ts'
import {
  GUEST,
  loadModule,
  mustRunIn,
  OUTSIDE,
  type Place,
  type RunningProgram,
  runIn,
  type UmlGuest,
} from '../support/uml-guest.ts'

const MEBIBYTES = 64
/** Where a packet costs a call. */
const FEWER_MEBIBYTES = 16
/** Of the speed without a tunnel. Below it something is lost, not slow: a connection that waits for its timers. */
const LEAST_RATIO = 0.03

const SMALL_PACKETS_PORT = 5555
const SMALL_PACKETS_SECONDS = 3
/** The receiver starts before the sender, which takes its time in a guest, and outlives it. */
const RECEIVER_LEAD_SECONDS = 2
/** Packets a second: what even a guest forwards. */
const LEAST_SMALL_PACKETS = 200

/** Of 46 000 frames one in a hundred is hit. */
const LEAST_HITS = 50

const BRIDGE = 'br0'
/** The daemon rewrites its status once a second. */
const STATUS_LIMIT_MS = 5000

const host = guestHost()

describeGuestWithoutVxlan(host, { mebibytes: MEBIBYTES, asksPeers: true })

/** netem's words, and the counters of whoever receives that show it did something. */
const FAULTS = [
  ['lost', 'loss 1%', ['TcpExtTCPOFOQueue']],
  ['out of order', 'delay 2ms reorder 1%', ['TcpExtTCPOFOQueue']],
  ['doubled', 'duplicate 1%', ['TcpExtTCPDSACKOldSent', 'TcpExtTCPDSACKOfoSent']],
  ['corrupted', 'corrupt 1%', ['UdpInCsumErrors']],
] as const

/** A second daemon of a host needs a network, a device and a port of its own. */
const OTHER_CONFIG = `sed 's/10[.]244/10.245/; s/:1}/:7,"Port":8473}/'`

describe('a transfer with the right SHA-256 both ways', () => {
  test('costs a part of the bare underlay’s speed, which is printed', async (context) => {
    const { guest } = bootedHost(host, context)
    const tunnel = await expectIntact(guest, guest.outside, OUTSIDE_OVERLAY, MEBIBYTES)
    const bare = await expectIntact(guest, guest.outside, OUTSIDE, MEBIBYTES)
    console.log(`bulk: ${tunnel.toFixed(1)} of ${bare.toFixed(1)} MiB/s, ratio ${(tunnel / bare).toFixed(2)}`)
    expect(tunnel / bare).toBeGreaterThan(LEAST_RATIO)
  })

  test.for(FAULTS)('although 1 %% of what the guest sends and gets is %s', async ([, words, evidence], context) => {
    const { guest, overlay } = bootedHost(host, context)
    const before = await hits(guest, evidence)
    await withNetem(guest, words)
    const out = await expectIntact(guest, guest.outside, OUTSIDE_OVERLAY, MEBIBYTES)
    const back = await expectIntact(guest.outside, guest, overlay, MEBIBYTES)
    const seen = (await hits(guest, evidence)).map((count, side) => count - before[side]!)
    console.log(`${words}: ${out.toFixed(1)} MiB/s out, ${back.toFixed(1)} MiB/s in; ${evidence.join(' + ')}: ${seen}`)
    expect(seen[0]! + seen[1]!).toBeGreaterThan(LEAST_HITS)
  })
})

/**
 * Both ways, until the end of the test. What comes in is led around a device that can queue; without merging by the
 * kernel, or a fault would hit a whole train. What goes out are trains.
 */
async function withNetem(guest: UmlGuest, words: string): Promise<void> {
  for (const module of ['sch_netem', 'ifb', 'sch_ingress', 'cls_matchall', 'act_mirred'])
    await loadModule(guest, module)
  const netem = `root netem ${words}`
  await inTurn(guest, [
    `tc qdisc replace dev vec0 ${netem}`,
    'ethtool -K vec0 gro off',
    'ip link add in0 type ifb',
    'ip link set in0 up',
    `tc qdisc add dev in0 ${netem}`,
    'tc qdisc add dev vec0 ingress',
    'tc filter add dev vec0 ingress matchall action mirred egress redirect dev in0',
  ])
  onTestFinished(() =>
    inTurn(guest, [
      'tc qdisc delete dev vec0 root',
      'tc qdisc delete dev vec0 ingress',
      'ip link delete in0',
      'ethtool -K vec0 gro on',
    ]),
  )
}

async function inTurn(guest: UmlGuest, commands: readonly string[]): Promise<void> {
  for (const command of commands) await mustRunIn(guest, command.split(' '))
}

/** Sums of counters outside and in the guest, as nstat(8) names them. */
function hits(guest: UmlGuest, names: readonly string[]): Promise<number[]> {
  const sum = (shown: string) =>
    [...shown.matchAll(/^\w+ +(\d+)/gm)].reduce((total, [, value]) => total + Number(value), 0)
  return Promise.all(
    [guest.outside, guest].map(async (place) => sum(await mustRunIn(place, ['nstat', '-asz', ...names]))),
  )
}

describe('without vxlan and without a daemon that needs none', () => {
  /** For the time being the guest has a directory of modules, with all that it has but vxlan. */
  async function amidModulesWithoutVxlan(guest: UmlGuest, words: readonly string[]): Promise<readonly string[]> {
    await loadModule(guest, 'overlay')
    const script = `from=/run/modules/lib/modules/$(uname -r); to=/run/shown/modules/$(uname -r); mkdir -p $to
      cp $from/modules.builtin $to; grep -v /vxlan.ko $from/modules.dep >$to/modules.dep
      mount -t overlay -o lowerdir=/run/shown:/usr/lib overlay /usr/lib && exec "$@"`
    return ['unshare', '--mount', 'bash', '-c', script, 'shown', ...words]
  }

  test('doctor knows what "operation not supported" means, and what to do', async (context) => {
    const { guest } = bootedHost(host, context)
    const unseen = await doctorIn(guest, placesInGuest('/run/nowhere'))
    const verdictOf = ({ report }: typeof unseen) => report.findings.find(({ check }) => check === 'vxlan-module')
    expect(verdictOf(unseen)).toMatchObject({
      severity: 'unseen',
      message: expect.stringMatching(/out of sight.*it has none if .*"operation not supported".*userspace dataplane/),
    })
    const absent = await doctorIn(guest, placesInGuest('/run/nowhere'), (words) =>
      amidModulesWithoutVxlan(guest, words),
    )
    expect(verdictOf(absent)).toMatchObject({
      severity: 'note',
      message: `kernel ${await releaseOf(guest)} has no vxlan module: "ip link add … type vxlan" says "operation not supported" or "unknown device type"`,
      remedy: expect.stringContaining('--dataplane userspace'),
    })
  })

  test('the kernel dataplane is refused with what to do, and leaves nothing', async (context) => {
    const { guest } = bootedHost(host, context)
    const place = ['--store', 'file:/run/other', '--state-dir', '/run/other-state', '--subnet-file', '/run/other.env']
    await mustRunIn(guest, ['bash', '-c', `mkdir /run/other && ${OTHER_CONFIG} /run/store/config >/run/other/config`])
    const words = ['run', '--iface', 'vec0', '--dataplane', 'kernel', ...place]
    const { exitCode, stderr } = await runIn(guest, [process.execPath, mainProgram(), ...words])
    expect(JSON.parse(stderr.trim().split('\n').at(-1)!)).toMatchObject({
      level: 'fatal',
      msg: 'this kernel has no vxlan device; load it with `modprobe vxlan`, or use --dataplane userspace, which needs none',
    })
    expect(exitCode).toBe(1)
    expect(await mustRunIn(guest, ['ls', '/run/other/subnets'])).toBe('')
  })
})

describe('with the next daemon on the same device', () => {
  test('the plain driver gets as much across, one packet a call, at a speed that is printed', async (context) => {
    const { guest, daemon, overlay } = bootedHost(host, context)
    const offload = await bothWays(guest, overlay)
    const offloadSmall = await smallBothWays(guest, overlay)
    await end(daemon)
    const plainDaemon = await startDaemonIn(guest, 'vec0', ['--driver', 'plain'])
    onTestFinished(() => end(plainDaemon))
    expect(await statusIn(guest)).toMatchObject({ driver: 'plain', features: { 'udp-gso': { on: false } } })
    const ratiosTo = (before: readonly number[], now: readonly number[]) =>
      now.map((speed, way) => (before[way]! / speed).toFixed(2)).join(' out, ')
    console.log(`bulk, offload to plain: ${ratiosTo(offload, await bothWays(guest, overlay))} in`)
    const plainSmall = await smallBothWays(guest, overlay)
    console.log(`64-byte UDP, offload to plain: ${ratiosTo(offloadSmall, plainSmall)} in`)
    expect(Math.min(...offloadSmall, ...plainSmall)).toBeGreaterThan(LEAST_SMALL_PACKETS)
  })

  test('an underlay without checksum offload costs no packet: what old kernels refuse is sent again', async (context) => {
    const { guest, daemon } = bootedHost(host, context)
    await end(daemon)
    await takeChecksumOffloadAway(guest)
    await startDaemonIn(guest, BRIDGE)
    const speed = await expectIntact(guest, guest.outside, OUTSIDE_OVERLAY, FEWER_MEBIBYTES)
    console.log(`without checksum offload: ${speed.toFixed(1)} MiB/s out`)
    const moved = async () => (await countersIn(guest))['outbound.bytes.passed']! > FEWER_MEBIBYTES * 2 ** 20
    await vi.waitUntil(moved, { timeout: STATUS_LIMIT_MS, interval: 200 })
    expect((await countersIn(guest))['outbound.dropped.tx-error']).toBe(0)
    // Since 6.11 the kernel sums such sends itself instead of refusing them.
    const sums = isKernelAtLeast(await releaseOf(guest), [6, 11, 0])
    expect((await statusIn(guest))?.features['udp-gso']).toMatchObject({ on: sums })
  })
})

/** MiB a second out and in. */
async function bothWays(guest: UmlGuest, overlay: string): Promise<number[]> {
  const out = await expectIntact(guest, guest.outside, OUTSIDE_OVERLAY, FEWER_MEBIBYTES)
  return [out, await expectIntact(guest.outside, guest, overlay, FEWER_MEBIBYTES)]
}

/** 64-byte UDP packets that arrive in a second, out and in. */
async function smallBothWays(guest: UmlGuest, overlay: string): Promise<number[]> {
  const out = await smallPackets(guest, guest.outside, OUTSIDE_OVERLAY)
  return [out, await smallPackets(guest.outside, guest, overlay)]
}

async function smallPackets(from: Place, to: Place, address: string): Promise<number> {
  const blast = [process.execPath, blastProgram()]
  const port = String(SMALL_PACKETS_PORT)
  const receiver = to.start([...blast, 'receive', address, port, String(SMALL_PACKETS_SECONDS + RECEIVER_LEAD_SECONDS)])
  const isReady = () => receiver.output.stderr.includes('ready') || receiver.output.exitCode !== null
  await vi.waitUntil(isReady, { timeout: STATUS_LIMIT_MS, interval: 20 })
  await mustRunIn(from, [...blast, 'send', address, port, String(SMALL_PACKET_BYTES), String(SMALL_PACKETS_SECONDS)])
  const { stdout, stderr } = await receiver.ended
  expect(stderr).toBe('ready\n')
  return (JSON.parse(stdout) as BlastResult).packetsPerSecond
}

async function end(daemon: RunningProgram): Promise<void> {
  daemon.kill()
  await daemon.ended
}

const countersIn = async (guest: UmlGuest) => (await statusIn(guest))?.counters ?? {}

/** Moves the underlay to a bridge above `vec0`, whose checksum offload, unlike that of `vec0`, can be taken away. */
async function takeChecksumOffloadAway(guest: UmlGuest): Promise<void> {
  await loadModule(guest, 'bridge')
  await inTurn(guest, [
    `ip link add ${BRIDGE} type bridge`,
    `ip address delete ${GUEST}/24 dev vec0`,
    `ip link set vec0 master ${BRIDGE}`,
    `ip address add ${GUEST}/24 dev ${BRIDGE}`,
    `ip link set ${BRIDGE} up`,
    `ethtool -K ${BRIDGE} tx off`,
  ])
}
