// The UDP socket on the real kernel, over the loopback of a namespace of its own: the compliance suite, opening,
// merging, sizes beyond the MTU, and a queue that overflows.
import { release } from 'node:os'
import { describe, expect, onTestFinished, test } from 'vitest'
import { EADDRINUSE, EADDRNOTAVAIL } from '../../dataplane/io/errno.ts'
import { testSegmentedSend } from '../../dataplane/io/linux/gso-self-test.ts'
import * as libc from '../../dataplane/io/linux/libc.ts'
import {
  type OpenUdpSocket,
  openSenders,
  openUdpSocket,
  openUdpSockets,
  receiveOneByOne,
} from '../../dataplane/io/linux/udp-open.ts'
import { UdpSocket } from '../../dataplane/io/linux/udp-socket.ts'
import { ReceiveSlots } from '../../dataplane/io/receive-slots.ts'
import { PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import {
  Exchange,
  FAR,
  NEAR,
  type SocketHarness,
  UNDERLAY_PORT,
  underlaySocketCompliance,
} from '../compliance/underlay-socket.ts'
import { addWideAddresses, oneDatagram, openOnLoopback, WIDE_LOOPBACK } from '../support/loopback-socket.ts'
import { inNetwork, NamespaceSocket } from '../support/namespace-socket.ts'
import { ip as iproute, ownNamespace } from '../support/own-namespace.ts'
import { countingBytes, ip } from '../support/packets.ts'
import { until } from '../support/running-worker.ts'

const MEMORY_BYTES = 16 * 1024 * 1024
const EBADF = 9

function open(namespace: string, address: string, wide: boolean): OpenUdpSocket {
  const opened = openOnLoopback(namespace, address, wide)
  onTestFinished(() => void libc.close(opened.fd))
  return opened
}

interface UdpHarness extends SocketHarness {
  readonly namespace: string
  readonly opened: OpenUdpSocket
}

function harness({
  maxSegments = Number.POSITIVE_INFINITY,
  mtu = 65536,
  plain = false,
  wide = false,
} = {}): UdpHarness {
  const namespace = ownNamespace()
  iproute('-n', namespace, 'link', 'set', 'lo', 'mtu', String(mtu))
  if (wide) addWideAddresses(namespace)
  const memory = new PacketMemory(MEMORY_BYTES, libc.addressOf)
  const [near, far] = [open(namespace, NEAR, wide), open(namespace, FAR, wide)]
  const addresses = wide ? { addresses: WIDE_LOOPBACK } : {}
  const socketOf = ({ fd, maxSegments: granted }: OpenUdpSocket) => {
    if (!plain) return new UdpSocket(memory, { fd, maxSegments: Math.min(granted, maxSegments), ...addresses })
    receiveOneByOne(fd)
    return new UdpSocket(memory, { fd, maxSegments: 1, messagesPerCall: 1, ...addresses })
  }
  const nearSocket = socketOf(near)
  return {
    namespace,
    opened: near,
    memory,
    near: nearSocket,
    far: socketOf(far),
    merges: far.receivesMerged && !plain,
    oneByOne: plain,
    ...(wide ? { largestBytes: 65527 } : {}),
    deliver: (datagram) => nearSocket.send(oneDatagram(memory, datagram)),
  }
}

describe('a UDP socket', () => underlaySocketCompliance(() => harness()))
describe('a UDP socket that sends one by one', () => underlaySocketCompliance(() => harness({ maxSegments: 1 })))
describe('a UDP socket with one datagram a call', () => underlaySocketCompliance(() => harness({ plain: true })))

describe('a UDP socket of IPv6', () => underlaySocketCompliance(() => harness({ wide: true })))
describe('a UDP socket of IPv6 with one datagram a call', () =>
  underlaySocketCompliance(() => harness({ wide: true, plain: true })))

describe('segmented sends that are tried on this kernel', () => {
  test('arrive as what went in', () => {
    expect(inNetwork(ownNamespace(), () => testSegmentedSend(ip(NEAR)))).toBe('passed')
    expect(inNetwork(ownNamespace(), () => testSegmentedSend(1n))).toBe('passed')
  })

  test('are no proof where the address is not ours', () => {
    expect(inNetwork(ownNamespace(), () => testSegmentedSend(ip('192.0.2.77')))).toBe('unknown')
  })
})

describe('opening a UDP socket', () => {
  test('grants segmented sends, merged receives and a large buffer', () => {
    const { opened } = harness()
    expect(opened.maxSegments).toBeGreaterThanOrEqual(63)
    expect(opened.receivesMerged).toBe(true)
    expect(opened.receiveBufferBytes).toBeGreaterThanOrEqual(4 * 1024 * 1024)
  })

  test('leaves merging off where the kernel is too old to be trusted with it, and sends fewer segments', () => {
    const namespace = ownNamespace()
    const result = inNetwork(namespace, () => openUdpSocket(ip(NEAR), UNDERLAY_PORT, '5.10.0-33-amd64'))
    if ('errno' in result) throw new Error(`errno ${result.errno}`)
    libc.close(result.fd)
    expect(result).toMatchObject({ receivesMerged: false, maxSegments: 63 })
  })

  test('on a port that is taken fails with EADDRINUSE, on an address that is not ours with EADDRNOTAVAIL', () => {
    const { namespace } = harness()
    const again = (address: string) => inNetwork(namespace, () => openUdpSocket(ip(address), UNDERLAY_PORT, release()))
    expect(again(NEAR)).toEqual({ step: 'bind', errno: EADDRINUSE })
    expect(again('192.0.2.77')).toEqual({ step: 'bind', errno: EADDRNOTAVAIL })
  })
})

describe('trains', () => {
  test('arrive merged, with the size to cut them at, and cost few calls', async () => {
    const sockets = harness()
    const exchange = new Exchange(sockets)
    const frames = Array.from({ length: 10 }, (_, n) => ({ bytes: countingBytes(1472, n) }))
    exchange.send(...frames, { bytes: countingBytes(200, 10) })
    expect(await exchange.firstReceive()).toBe(1)
    expect(exchange.slots.length[0]).toBe(10 * 1472 + 200)
    expect(exchange.slots.segmentSize[0]).toBe(1472)
  })

  test('of as many segments as this kernel allows leave in one send', async () => {
    const sockets = harness()
    const exchange = new Exchange(sockets)
    const frames = Array.from({ length: sockets.near.maxSegments }, (_, n) => ({ bytes: countingBytes(100, n) }))
    expect(exchange.send(...frames)).toEqual([0])
    expect((await exchange.arrived(frames.length)).map(({ bytes }) => bytes)).toEqual(frames.map(({ bytes }) => bytes))
  })
})

describe('frames beyond the MTU of the underlay', () => {
  test('alone are fragmented by the kernel and arrive whole', async () => {
    const exchange = new Exchange(harness({ mtu: 1500 }))
    const frames = [1472, 1473, 3000, 9000, 60000].map((size, n) => ({ bytes: countingBytes(size, n), alone: true }))
    expect(exchange.send(...frames)).toEqual([0, 0, 0, 0, 0])
    const arrived = await exchange.arrived(frames.length)
    expect(arrived.map(({ bytes }) => bytes.length)).toEqual([1472, 1473, 3000, 9000, 60000])
    for (const [n, { bytes }] of arrived.entries()) expect(Buffer.compare(bytes, frames[n]!.bytes)).toBe(0)
  })

  test('inside a segmented send are refused by the kernel, and leave one by one all the same', async () => {
    const exchange = new Exchange(harness({ mtu: 1500 }))
    const frames = [0, 1, 2].map((n) => ({ bytes: countingBytes(1473, n) }))
    expect(exchange.send(...frames)).toEqual([0])
    expect(exchange.batch.resent).toBe(1)
    expect((await exchange.arrived(frames.length)).map(({ bytes }) => bytes)).toEqual(frames.map(({ bytes }) => bytes))
  })
})

describe('sending sockets', () => {
  const POOL = 16

  test('give each sender a port of its own, none of them the service port, and keep the order of each', async () => {
    const sockets = harness()
    const fds = inNetwork(sockets.namespace, () => openSenders(ip(NEAR), POOL))
    onTestFinished(() => fds.forEach((fd) => void libc.close(fd)))
    const near = new UdpSocket(sockets.memory, { ...sockets.opened, senderFds: fds })
    const exchange = new Exchange({ ...sockets, near })
    const sent = Array.from({ length: 60 }, (_, n) => ({ bytes: countingBytes(100 + n, n), sender: (n * 7) % POOL }))
    expect(new Set(exchange.send(...sent))).toEqual(new Set([0]))
    const arrived = await exchange.arrived(sent.length)
    expect(arrived).toHaveLength(sent.length)
    const ports = new Map<number, Uint8Array[]>()
    for (const { port, bytes } of arrived) ports.set(port, [...(ports.get(port) ?? []), bytes])
    expect(ports.size).toBe(POOL)
    expect(ports.has(UNDERLAY_PORT)).toBe(false)
    const flows = Array.from({ length: POOL }, (_, sender) => sent.filter((frame) => frame.sender === sender))
    const bySize = (a: Uint8Array[], b: Uint8Array[]) => a[0]!.length - b[0]!.length
    const wanted = flows.map((flow) => flow.map(({ bytes }) => bytes))
    expect([...ports.values()].sort(bySize)).toEqual(wanted.sort(bySize))
  })

  test('keep next to nothing of what strangers send to them', () => {
    const { namespace } = harness()
    const [fd] = inNetwork(namespace, () => openSenders(ip(NEAR), 1))
    onTestFinished(() => void libc.close(fd!))
    expect(libc.getsockopt(fd!, 1, 8)).toBeLessThan(5000)
  })
})

describe('sockets that share a port', () => {
  const shared = (namespace: string, count: number) =>
    inNetwork(namespace, () => openUdpSockets(ip(NEAR), UNDERLAY_PORT + 1, release(), count))

  test('are as many as asked for, and each sender always reaches the same one', async () => {
    const { namespace, memory } = harness()
    const opened = shared(namespace, 2)
    if ('errno' in opened) throw new Error(`errno ${opened.errno}`)
    onTestFinished(() => opened.forEach(({ fd }) => void libc.close(fd)))
    const sockets = opened.map((one) => new UdpSocket(memory, one))
    const slots = new ReceiveSlots(memory, 8)
    const reached = new Set<number>()
    for (let peer = 0; peer < 40; peer++) {
      const sender = NamespaceSocket.udp(namespace, { from: [FAR, 20_000 + peer], to: [NEAR, UNDERLAY_PORT + 1] })
      for (let n = 0; n < 3; n++) await sender.write(countingBytes(50))
      sender.close()
      const counts = sockets.map(() => 0)
      await until(() => {
        for (const [index, socket] of sockets.entries()) {
          const received = socket.receive(slots)
          for (let slot = 0; slot < received; slot++) counts[index]! += slots.length[slot]!
        }
        return counts[0]! + counts[1]! >= 150
      })
      expect(counts.filter((bytes) => bytes > 0)).toEqual([150])
      reached.add(counts.findIndex((bytes) => bytes > 0))
    }
    expect(reached.size).toBe(2)
  })

  test('are refused where somebody listens already, be it one of ours', () => {
    const { namespace } = harness()
    const opened = shared(namespace, 2)
    if ('errno' in opened) throw new Error(`errno ${opened.errno}`)
    onTestFinished(() => opened.forEach(({ fd }) => void libc.close(fd)))
    expect(shared(namespace, 2)).toEqual({ step: 'bind', errno: EADDRINUSE })
    expect(shared(namespace, 1)).toEqual({ step: 'bind', errno: EADDRINUSE })
  })
})

describe('a receive queue that overflows', () => {
  test('tells how many datagrams were lost', async () => {
    const sockets = harness()
    const exchange = new Exchange(sockets)
    const large = { bytes: countingBytes(60_000), alone: true }
    let sent = 0
    for (let round = 0; round < 40; round++) {
      for (const errno of exchange.send(large)) if (errno === 0) sent++
      for (let again = 0; again < 24; again++) {
        exchange.harness.near.send(exchange.batch)
        sent++
      }
    }
    const arrived = (await exchange.rest()).length
    expect(arrived).toBeLessThan(sent)
    // The count travels with the next datagram that finds room.
    exchange.send({ bytes: countingBytes(10) })
    expect(await exchange.arrived(1)).toHaveLength(1)
    expect(exchange.slots.overflowed).toBe(sent - arrived)
  })
})

describe('a descriptor that is no good', () => {
  test('gives errors by value', () => {
    const memory = new PacketMemory(MEMORY_BYTES, libc.addressOf)
    const socket = new UdpSocket(memory, { fd: 987_654, maxSegments: 63 })
    const exchange = new Exchange({ memory, near: socket, far: socket, merges: false, deliver: () => undefined })
    expect(exchange.send({ bytes: countingBytes(10) }, { bytes: countingBytes(10), alone: true })).toEqual([
      EBADF,
      EBADF,
    ])
    expect(socket.receive(new ReceiveSlots(memory, 1))).toBe(-EBADF)
  })
})
