// Ours and the kernel's VXLAN in one lab: host1 and host3 forward by our engine, host2 by the kernel. Everything that
// must hold for every underlay and both kinds of outer checksum, for the short and the long suite.
import { setTimeout as pause } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { blast, countPackets } from '../../bench/netns/load.ts'
import type { WorkerDriver } from '../../dataplane/index.ts'
import type { Lab } from '../../src/lab/lab.ts'
import type { AddressFamily } from '../../src/lab/ping.ts'
import type { UnderlayKind } from '../../src/lab/plan.ts'
import { countersOf, eventually, expectCleanBooks, labUnderTest } from './lab-under-test.ts'
import { startTransfer } from './transfer.ts'

/** All six directions: ours to ours, ours to the kernel, the kernel to ours, each both ways. */
export const DIRECTIONS = [
  ['pod1.1', 'pod2.1'],
  ['pod2.1', 'pod1.1'],
  ['pod1.1', 'pod3.1'],
  ['pod3.1', 'pod1.1'],
  ['pod2.1', 'pod3.1'],
  ['pod3.1', 'pod2.1'],
] as const

const PINGS = 20
/** A measurement of a second in which somebody got no time is none, and made once more. */
const AGAIN = { timeout: 30_000, interval: 0 }
/** After the last datagram was sent: for what still is under way, milliseconds. */
const UNDER_WAY_MS = 2000
/** Least that TCP must reach: a tunnel that loses what is merged or unsummed limps along at a few Mbit/s. */
const LEAST_TCP: Record<WorkerDriver, number> = { offload: 100e6, plain: 20e6, dgram: 20e6, raw: 20e6 }
const LARGEST_LOSS = 0.001
const BITS_PER_SECOND = 100e6
/** Bytes of a datagram. */
const LENGTH = 1400
const PORT = 7200

export interface InteropOptions {
  readonly underlay: UnderlayKind
  /** Whether the kernel's device computes outer checksums. */
  readonly udpChecksum: boolean
  readonly directions: readonly (readonly [string, string])[]
  /** Length of each measurement. */
  readonly seconds: number
  /** What moves our packets. */
  readonly driver?: WorkerDriver
  /** Which addresses of the pods are used; 4 when left out. */
  readonly family?: AddressFamily
}

export function describeInterop(options: InteropOptions): void {
  const { underlay, udpChecksum, directions, seconds, driver = 'offload', family = 4 } = options
  const checksum = udpChecksum ? 'udpcsum' : 'noudpcsum'
  describe(`a kernel peer of the ${driver} driver over ${underlay}, ${checksum}, IPv${family} inside`, () => {
    const daemonArguments = ['--driver', driver]
    const name = `${driver === 'offload' ? 'interop' : driver}${underlay}${family}`
    const ipv6 = family === 6
    const lab = labUnderTest({ name, pods: 1, kernel: ['host2'], underlay, ipv6, udpChecksum, daemonArguments })

    test('has the kind of checksum that was asked for', async () => {
      const shown = (await lab().exec('host2', ['ip', '-d', 'link', 'show', 'flannel.1'])).stdout
      expect(shown.match(/\b(no)?udpcsum\b/)?.[0]).toBe(checksum)
    })

    test('answers every ping, and is answered', async () => {
      const results = await lab().pingAll({ count: PINGS, family })
      expect(results).toHaveLength(6)
      expect(results.filter(({ sent, received }) => sent !== PINGS || received !== sent)).toEqual([])
    })

    const told = `${underlay} ${checksum}`
    test.each(directions)('carries TCP from %s to %s', async (from, to) => {
      const measure = async () => {
        const { bitsPerSecond } = await lab().iperf(from, to, { seconds, family })
        console.log(`${told} ${from} → ${to}: TCP ${(bitsPerSecond / 1e9).toFixed(2)} Gbit/s`)
        return bitsPerSecond
      }
      await expect.poll(measure, AGAIN).toBeGreaterThan(LEAST_TCP[driver])
    })

    test.each(directions)('carries 100 Mbit/s of UDP from %s to %s with at most a thousandth lost', (from, to) =>
      expectNoLoss({ lab: lab(), from, to, seconds, family }, told),
    )

    test.each(directions)('brings the very bytes from %s to %s', async (from, to) => {
      const transfer = await startTransfer(lab().endpoint(from), lab().endpoint(to, family), { mebibytes: 8 })
      const { sent, received } = await transfer.done
      expect(received).toBe(sent)
      expect(received).toMatch(/^8388608 /)
    })

    test.each(['host1', 'host3'])('leaves %s with balanced books and nothing dropped', async (host) => {
      await eventually(() => {
        const counters = countersOf(lab(), host)
        expect(counters['inbound.packets.read']).toBeGreaterThan(2 * PINGS)
        expectCleanBooks(counters)
      })
    })
  })
}

interface UdpLoad {
  readonly lab: Lab
  readonly from: string
  readonly to: string
  readonly seconds: number
  readonly family: AddressFamily
}

async function expectNoLoss(load: UdpLoad, told: string): Promise<void> {
  const tell = (share: number, by: string) =>
    console.log(`${told} ${load.from} → ${load.to}: UDP ${(100 * share).toFixed(3)} % lost ${by}`)
  const reported = await lossByIperf(load)
  tell(reported, 'by iperf3')
  if (reported <= LARGEST_LOSS) return
  const measure = async () => {
    const exact = await exactLoss(load)
    tell(exact, 'by the network')
    return exact
  }
  await expect.poll(measure, AGAIN).toBeLessThanOrEqual(LARGEST_LOSS)
}

/** Share of datagrams that never reached the receiver's socket; all of them when iperf3 did not get to sending at its rate. */
async function lossByIperf({ lab, from, to, seconds, family }: UdpLoad): Promise<number> {
  const { packets, lostPackets, overflowedPackets } = await lab.iperf(from, to, {
    seconds,
    udp: true,
    bitrate: '100M',
    lengthBytes: LENGTH,
    family,
  })
  if (packets === null || packets < (0.9 * BITS_PER_SECOND * seconds) / (8 * LENGTH)) return 1
  return ((lostPackets ?? Number.NaN) - (overflowedPackets ?? 0)) / packets
}

/**
 * The same load, counted without iperf3: its receive buffer is too small for a machine so busy that it gets no time for
 * some 20 ms, and what overflows there has crossed the network well.
 */
async function exactLoss({ lab, from, to, seconds, family }: UdpLoad): Promise<number> {
  const target = lab.endpoint(to, family)
  const counter = await countPackets(target, PORT)
  const rate = Math.round(BITS_PER_SECOND / (8 * LENGTH))
  const words = ['send', target.address, PORT, LENGTH, seconds, rate]
  const sent = await blast(lab.endpoint(from), words).finally(() => pause(UNDER_WAY_MS).then(counter.end))
  const { packets } = await counter.result
  return (sent.packets - packets) / sent.packets
}
