// Pods that send super-packets of UDP (UDP_SEGMENT, as QUIC does), and datagrams larger than the MTU: every byte
// arrives, whichever dataplane is on either side.
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { Endpoint } from '../../src/lab/ping.ts'
import { Capture } from '../support/capture.ts'
import { labUnderTest } from '../support/lab-under-test.ts'
import { NamespaceSocket } from '../support/namespace-socket.ts'
import { ip } from '../support/own-namespace.ts'
import { countingBytes } from '../support/packets.ts'

const PORT = 7100
/** So many super-packets may be under way: as single packets they still fit into every queue of a receiver that waits. */
const UNDER_WAY = 8
const DIRECTIONS = [
  ['pod1.1', 'pod3.1'],
  ['pod1.1', 'pod2.1'],
  ['pod2.1', 'pod3.1'],
  ['pod3.1', 'pod2.1'],
] as const

describe.each(['veth', 'uso', 'wire'] as const)('over %s', (underlay) => {
  const lab = labUnderTest({ name: `segmented${underlay}`, pods: 1, kernel: ['host2'], underlay })

  // Until a neighbour is known a kernel keeps a few packets, and drops the others.
  beforeAll(async () => {
    const results = await lab().pingAll({ count: 2 })
    expect(results.filter(({ received }) => received === 0)).toEqual([])
  })

  /** Sends from one pod to another and gives what arrived. */
  function cross(from: string, to: string, writes: readonly Uint8Array[], count: number, segmentBytes?: number) {
    return carry(from, lab().endpoint(to), writes, count, segmentBytes)
  }

  async function carry(
    from: string,
    { address, namespace }: Pick<Endpoint, 'address' | 'namespace'>,
    writes: readonly Uint8Array[],
    count: number,
    segmentBytes?: number,
  ) {
    const receiver = NamespaceSocket.udp(namespace, { from: [address, PORT] })
    const options = segmentBytes === undefined ? {} : { segmentBytes }
    const sender = NamespaceSocket.udp(lab().namespace(from), { to: [address, PORT], ...options })
    onTestFinished(() => {
      receiver.close()
      sender.close()
    })
    const arrived: Uint8Array[] = []
    const arriveUpTo = async (least: number) => {
      if (least > arrived.length) arrived.push(...(await receiver.readMany(least - arrived.length)))
    }
    for (const [index, bytes] of writes.entries()) {
      await sender.write(bytes)
      await arriveUpTo(((index + 1 - UNDER_WAY) * count) / writes.length)
    }
    await arriveUpTo(count)
    return arrived
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

  test('datagrams of a tunnel that pods have between them arrive whole, joined on the way or not', async () => {
    const ends = ['pod1.1', 'pod3.1'].map((pod) => lab().endpoint(pod))
    for (const [index, { namespace }] of ends.entries()) {
      const remote = ends[1 - index]!.address
      const words = `id 42 remote ${remote} dstport 4789 dev eth0`
      ip('-n', namespace, 'link', 'add', 'inside', 'mtu', '1400', 'type', 'vxlan', ...words.split(' '))
      ip('-n', namespace, 'address', 'add', `172.30.0.${index + 1}/24`, 'dev', 'inside')
      ip('-n', namespace, 'link', 'set', 'inside', 'up')
    }
    onTestFinished(() => {
      for (const { namespace } of ends) ip('-n', namespace, 'link', 'delete', 'inside')
    })
    const inside = { address: '172.30.0.2', namespace: ends[1]!.namespace }
    // Until the neighbour is known the pod's own kernel keeps a few packets, and drops the others.
    expect(await lab().exec('pod1.1', ['ping', '-n', '-c', '1', '-W', '10', inside.address])).toMatchObject({
      exitCode: 0,
    })
    const writes = Array.from({ length: 20 }, (_, index) => countingBytes(1200 * 20, index * 7919))
    const expected = writes.flatMap((bytes) =>
      Array.from({ length: 20 }, (_, index) => bytes.slice(index * 1200, (index + 1) * 1200)),
    )
    const arrived = await carry('pod1.1', inside, writes, expected.length, 1200)
    expect(arrived).toHaveLength(expected.length)
    expect(arrived.findIndex((datagram, index) => !equal(datagram, expected[index]))).toBe(-1)
  })

  test('what a pod sends in fragments crosses the underlay in whole datagrams', async () => {
    const out = { namespace: lab().namespace('host1'), device: 'eth0', direction: 'out' } as const
    const [fragments, tunnel] = await Promise.all([
      Capture.start({ ...out, filter: 'ip[6:2] & 0x3fff != 0' }),
      Capture.start({ ...out, filter: 'udp dst port 8472' }),
    ])
    expect(await cross('pod1.1', 'pod3.1', [countingBytes(60_000)], 1)).toHaveLength(1)
    await expect.poll(() => tunnel.frames().length).toBeGreaterThan(0)
    await tunnel.stop()
    expect(await fragments.stop()).toEqual([])
  })
})

function equal(left: Uint8Array, right: Uint8Array | undefined): boolean {
  return right !== undefined && Buffer.compare(left, right) === 0
}
