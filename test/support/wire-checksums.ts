// tshark as the referee of everything that a host puts on a wire under load, with all of its checksum checks on. One
// bad frame is planted among the captured ones, so that a referee who sees nothing is found out. For the short and the
// long suite.
import { describe, expect, test } from 'vitest'
import type { Lab } from '../../src/lab/lab.ts'
import type { AddressFamily } from '../../src/lab/ping.ts'
import { Capture } from './capture.ts'
import { labUnderTest } from './lab-under-test.ts'
import { ip } from './own-namespace.ts'
import { dissect, whyNoTshark } from './tshark.ts'

const CHECKSUMS = ['ip', 'udp', 'tcp', 'icmp', 'icmpv6'].map((protocol) => `${protocol}.checksum.status`)
const MALFORMED = '_ws.malformed'
/** tshark's words for the state of a checksum. */
const BAD = '0'
const GOOD = '1'

export interface BusyWire {
  readonly frames: number
  /** Of the pods' addresses. */
  readonly family: AddressFamily
}

export function describeWireChecksums({ frames: wanted, family }: BusyWire): void {
  describe(`${wanted} frames of a busy host with IPv${family} inside, read by tshark`, () => {
    const ipv6 = family === 6
    const lab = labUnderTest({ name: `checksums${family}`, hosts: 2, pods: 2, ipv6, underlay: 'wire' })
    /** IPv6 has no header checksum. */
    const headers = ipv6 ? GOOD : `${GOOD},${GOOD}`
    const echo = `${ipv6 ? 'icmpv6' : 'icmp'}.checksum.status`

    test('are whole and right, all but the planted one', async (context) => {
      const reason = whyNoTshark()
      if (reason !== undefined) context.skip(reason)
      const frames = await busyFrames(lab(), wanted, family)
      expect(frames.length).toBeGreaterThanOrEqual(wanted)
      const planted = frames.findIndex((frame, index) => index > wanted / 2 && frame.length > 1000)
      frames[planted] = spoilt(frames[planted]!)
      const dissected = dissect(frames, [...CHECKSUMS, MALFORMED, 'vxlan.vni'])
      const values = (index: number, field: string) => dissected[index]?.get(field) ?? []
      const wrong = (index: number) =>
        values(index, MALFORMED).length > 0 || CHECKSUMS.some((field) => values(index, field).includes(BAD))
      expect(frames.map((_, index) => index).filter(wrong)).toEqual([planted])
      const unchecked = (index: number) =>
        values(index, 'ip.checksum.status').join() !== headers ||
        values(index, 'udp.checksum.status')[0] !== GOOD ||
        values(index, 'vxlan.vni').join() !== '1'
      expect(frames.map((_, index) => index).filter(unchecked)).toEqual([planted].filter(unchecked))
      const inside = (field: string) => dissected.filter((frame) => frame.get(field)?.at(-1) === GOOD).length
      console.log(`${frames.length} frames: ${inside('tcp.checksum.status')} TCP, ${inside(echo)} ICMP`)
      expect(inside('tcp.checksum.status')).toBeGreaterThan(wanted / 4)
      expect(inside(echo)).toBeGreaterThan(3)
    })
  })
}

/** Frames that leave host1 while its pods send TCP, UDP, datagrams in fragments and pings. */
async function busyFrames(lab: Lab, count: number, family: AddressFamily): Promise<Uint8Array[]> {
  for (const host of ['host1', 'host2']) {
    ip('netns', 'exec', lab.namespace(host), 'ethtool', '-K', 'eth0', 'gro', 'off')
  }
  const capture = await Capture.start({
    namespace: lab.namespace('host1'),
    device: 'eth0',
    direction: 'out',
    filter: 'udp dst port 8472',
    count,
  })
  while (capture.isRunning) {
    await Promise.all([
      lab.iperf('pod1.1', 'pod2.1', { family, seconds: 1, bitrate: '200M' }),
      lab.iperf('pod1.2', 'pod2.2', { family, seconds: 1, udp: true, bitrate: '5M', lengthBytes: 1111 }),
      lab.iperf('pod1.2', 'pod2.1', { family, seconds: 1, udp: true, bitrate: '3M', lengthBytes: 4001 }),
      lab.ping('pod1.1', 'pod2.2', { family, count: 20, sizeBytes: 99 }),
    ])
  }
  return capture.stop()
}

/** The frame with one bit of its last byte turned. */
function spoilt(frame: Uint8Array): Uint8Array {
  const copy = frame.slice()
  copy[copy.length - 1]! ^= 0x01
  return copy
}
