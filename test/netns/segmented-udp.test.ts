// Pods that send super-packets of UDP (UDP_SEGMENT, as QUIC does), and datagrams larger than the MTU: every byte
// arrives, whichever dataplane is on either side.
import { describe, expect, onTestFinished, test } from 'vitest'
import { Capture } from '../support/capture.ts'
import { labUnderTest } from '../support/lab-under-test.ts'
import { NamespaceSocket } from '../support/namespace-socket.ts'
import { countingBytes } from '../support/packets.ts'

const PORT = 7100
const DIRECTIONS = [
  ['pod1.1', 'pod3.1'],
  ['pod1.1', 'pod2.1'],
  ['pod2.1', 'pod3.1'],
  ['pod3.1', 'pod2.1'],
] as const

describe.each(['veth', 'uso', 'wire'] as const)('over %s', (underlay) => {
  const lab = labUnderTest({ name: `segmented${underlay}`, pods: 1, kernel: ['host2'], underlay })

  /** Sends from one pod to another and gives what arrived. */
  async function cross(from: string, to: string, writes: readonly Uint8Array[], count: number, segmentBytes?: number) {
    const { address, namespace } = lab().endpoint(to)
    const receiver = NamespaceSocket.udp(namespace, { from: [address, PORT] })
    const options = segmentBytes === undefined ? {} : { segmentBytes }
    const sender = NamespaceSocket.udp(lab().namespace(from), { to: [address, PORT], ...options })
    onTestFinished(() => {
      receiver.close()
      sender.close()
    })
    for (const bytes of writes) await sender.write(bytes)
    return receiver.readMany(count)
  }

  test.each(DIRECTIONS)('super-packets arrive whole and in order: %s → %s', async (from, to) => {
    const segmentBytes = 1200
    const perWrite = 40
    // The last datagram of each super-packet is shorter.
    const writes = Array.from({ length: 50 }, (_, index) =>
      countingBytes(segmentBytes * (perWrite - 1) + 333, index * 7919),
    )
    const expected = writes.flatMap((bytes) =>
      Array.from({ length: perWrite }, (_, index) => bytes.slice(index * segmentBytes, (index + 1) * segmentBytes)),
    )
    const arrived = await cross(from, to, writes, expected.length, segmentBytes)
    expect(arrived).toHaveLength(expected.length)
    expect(arrived.findIndex((datagram, index) => !equal(datagram, expected[index]))).toBe(-1)
  })

  test.each(DIRECTIONS)('super-packets of many tiny datagrams arrive whole: %s → %s', async (from, to) => {
    const bytes = countingBytes(60)
    const arrived = await cross(from, to, [bytes], 60, 1)
    expect(arrived.map((datagram) => [...datagram])).toEqual([...bytes].map((byte) => [byte]))
  })

  test.each(DIRECTIONS)('datagrams of 3000, 8000 and 60000 bytes arrive whole: %s → %s', async (from, to) => {
    const sent = [3000, 8000, 60_000].map((length) => countingBytes(length, length))
    const arrived = await cross(from, to, sent, sent.length)
    expect(arrived.map((datagram) => datagram.length)).toEqual([3000, 8000, 60_000])
    expect(arrived.every((datagram, index) => equal(datagram, sent[index]))).toBe(true)
  })

  test('what a pod sends in fragments crosses the underlay in whole datagrams', async () => {
    const out = { namespace: lab().namespace('host1'), device: 'eth0', direction: 'out' } as const
    const [fragments, tunnel] = await Promise.all([
      Capture.start({ ...out, filter: 'ip[6:2] & 0x3fff != 0' }),
      Capture.start({ ...out, filter: 'udp dst port 8472' }),
    ])
    expect(await cross('pod1.1', 'pod2.1', [countingBytes(60_000)], 1)).toHaveLength(1)
    expect(await fragments.stop()).toEqual([])
    expect((await tunnel.stop()).length).toBeGreaterThan(0)
  })
})

function equal(left: Uint8Array, right: Uint8Array | undefined): boolean {
  return right !== undefined && Buffer.compare(left, right) === 0
}
