// Ours and the kernel's VXLAN in one lab: host1 and host3 forward by our engine, host2 by the kernel. Everything that must
// hold for every underlay and both kinds of outer checksum, for the short and the long suite.
import { describe, expect, test } from 'vitest'
import type { Lab } from '../../src/lab/lab.ts'
import type { UnderlayKind } from '../../src/lab/plan.ts'
import { countersOf, eventually, imbalanceOf, labUnderTest, newDrops } from './lab-under-test.ts'

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
const LARGEST_LOSS = 0.001

export interface InteropOptions {
  readonly underlay: UnderlayKind
  /** Whether the kernel's device computes outer checksums. */
  readonly udpChecksum: boolean
  readonly directions: readonly (readonly [string, string])[]
  /** Length of each measurement. */
  readonly seconds: number
}

export function describeInterop({ underlay, udpChecksum, directions, seconds }: InteropOptions): void {
  const checksum = udpChecksum ? 'udpcsum' : 'noudpcsum'
  describe(`a kernel peer over ${underlay}, ${checksum}`, () => {
    const lab = labUnderTest({ name: `interop${underlay}`, pods: 1, kernel: ['host2'], underlay, udpChecksum })

    test('has the kind of checksum that was asked for', async () => {
      const shown = (await lab().exec('host2', ['ip', '-d', 'link', 'show', 'flannel.1'])).stdout
      expect(shown.match(/\b(no)?udpcsum\b/)?.[0]).toBe(checksum)
    })

    test('answers every ping, and is answered', async () => {
      const results = await lab().pingAll({ count: PINGS })
      expect(results).toHaveLength(6)
      expect(results.filter(({ sent, received }) => sent !== PINGS || received !== sent)).toEqual([])
    })

    test.each(directions)('carries TCP from %s to %s', async (from, to) => {
      const { bitsPerSecond } = await lab().iperf(from, to, { seconds })
      console.log(`${underlay} ${checksum} ${from} → ${to}: TCP ${(bitsPerSecond / 1e9).toFixed(2)} Gbit/s`)
      // A tunnel that loses what is merged or unsummed limps along at a few Mbit/s.
      expect(bitsPerSecond).toBeGreaterThan(100e6)
    })

    test.each(directions)(
      'carries 100 Mbit/s of UDP from %s to %s with at most a thousandth lost',
      async (from, to) => {
        const { lost, unread } = await lossOf(lab(), from, to, seconds)
        const told = `${(100 * lost).toFixed(3)} % lost, ${(100 * unread).toFixed(3)} % not read in time by iperf3`
        console.log(`${underlay} ${checksum} ${from} → ${to}: UDP ${told}`)
        expect(lost).toBeLessThanOrEqual(LARGEST_LOSS)
      },
    )

    test.each(['host1', 'host3'])('leaves %s with balanced books and nothing dropped', async (host) => {
      await eventually(() => {
        const counters = countersOf(lab(), host)
        expect(counters['inbound.packets.read']).toBeGreaterThan(2 * PINGS)
        expect(imbalanceOf(counters)).toEqual({ packets: 0, bytes: 0 })
        expect(newDrops({}, counters)).toEqual({})
      })
    })
  })
}

/**
 * Shares of the datagrams sent, at nine tenths of 100 Mbit/s or more: those that did not reach the receiver's socket, and
 * those that did and overflowed it, because a busy machine gave iperf3 no time: the network has done its work then.
 */
async function lossOf(lab: Lab, from: string, to: string, seconds: number): Promise<{ lost: number; unread: number }> {
  const lengthBytes = 1400
  const before = await receiveBufferErrors(lab, to)
  const result = await lab.iperf(from, to, { seconds, udp: true, bitrate: '100M', lengthBytes })
  const unread = (await receiveBufferErrors(lab, to)) - before
  const packets = result.packets ?? 0
  expect(packets).toBeGreaterThan((0.9 * 100e6 * seconds) / (8 * lengthBytes))
  return { lost: ((result.lostPackets ?? Number.NaN) - unread) / packets, unread: unread / packets }
}

/** Datagrams that found no room in a socket of the namespace: proc_net(5), snmp. */
async function receiveBufferErrors(lab: Lab, member: string): Promise<number> {
  const { stdout } = await lab.exec(member, ['cat', '/proc/net/snmp'])
  const [names = [], values = []] = stdout
    .split('\n')
    .flatMap((line) => (line.startsWith('Udp:') ? [line.split(' ')] : []))
  return Number(values[names.indexOf('RcvbufErrors')])
}
