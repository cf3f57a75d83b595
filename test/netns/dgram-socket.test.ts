// The dgram driver's socket on the real kernel, over the loopback of a namespace: the compliance suite, source ports, what
// is under way, and failures that Node tells of later.
import { release } from 'node:os'
import { describe, expect, onTestFinished, test } from 'vitest'
import { EINPROGRESS } from '../../dataplane/io/errno.ts'
import * as libc from '../../dataplane/io/linux/libc.ts'
import { openSenders, openUdpSocket, receiveOneByOne } from '../../dataplane/io/linux/udp-socket.ts'
import { DgramSocket, type DgramSocketOptions } from '../../dataplane/io/node/dgram-socket.ts'
import { ReceiveSlots } from '../../dataplane/io/receive-slots.ts'
import { SendBatch } from '../../dataplane/io/send-batch.ts'
import { PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import {
  Exchange,
  FAR,
  NEAR,
  type SocketHarness,
  UNDERLAY_PORT,
  underlaySocketCompliance,
} from '../compliance/underlay-socket.ts'
import { inNetwork, NamespaceSocket } from '../support/namespace-socket.ts'
import { ownNamespace } from '../support/own-namespace.ts'
import { countingBytes, ip } from '../support/packets.ts'
import { until } from '../support/running-worker.ts'

const MEMORY_BYTES = 16 * 1024 * 1024
const SOURCE_PORTS = 4

interface DgramHarness extends SocketHarness {
  readonly namespace: string
  readonly near: DgramSocket
  readonly far: DgramSocket
  /** Descriptor of the far socket. */
  readonly farFd: number
  /** How often the near socket said that there is room again. */
  rooms(): number
}

function open(namespace: string, address: string): number {
  const result = inNetwork(namespace, () => openUdpSocket(ip(address), UNDERLAY_PORT, release()))
  if ('errno' in result) throw new Error(`${result.step}: errno ${result.errno}`)
  receiveOneByOne(result.fd)
  return result.fd
}

function harness({ sourcePorts = 0 } = {}): DgramHarness {
  const namespace = ownNamespace()
  const memory = new PacketMemory(MEMORY_BYTES, libc.addressOf)
  let rooms = 0
  const socketOf = (fd: number, rest: Partial<DgramSocketOptions> = {}) => {
    const socket = new DgramSocket(memory, {
      ...{ fd, lost: () => libc.socketDrops(fd), onReceivable: () => undefined },
      onRoom: () => {
        rooms += 1
      },
      ...rest,
    })
    onTestFinished(() => socket.close())
    return socket
  }
  const farFd = open(namespace, FAR)
  const senderFds = inNetwork(namespace, () => openSenders(ip(NEAR), sourcePorts))
  const near = socketOf(open(namespace, NEAR), { senderFds })
  const far = socketOf(farFd)
  const fates = new Map<number, number>()
  near.tellSettled(({ serial, errno }) => fates.set(serial, errno))
  return {
    ...{ namespace, memory, near, far, farFd, rooms: () => rooms, merges: false, marks: false },
    later: {
      async settle(batch) {
        const waits = () => [...batch.errno.keys()].slice(0, batch.count).filter((n) => batch.errno[n] === EINPROGRESS)
        await until(() => waits().every((message) => fates.has(batch.firstSerial + message)))
        for (const message of waits()) batch.errno[message] = fates.get(batch.firstSerial + message)!
        fates.clear()
      },
      arrive: (count) => until(() => far.waiting >= count),
    },
    deliver: (datagram) => near.send(oneDatagram(memory, datagram)),
  }
}

function oneDatagram(memory: PacketMemory, datagram: Uint8Array): SendBatch {
  const batch = new SendBatch(memory, 1)
  const at = memory.reserve(Math.max(datagram.length, 1))
  memory.bytes.set(datagram, at)
  batch.frame(ip(FAR), UNDERLAY_PORT, 0, datagram.length, true)
  if (datagram.length > 0) batch.add(at, datagram.length)
  return batch
}

describe('a socket of Node', () => {
  underlaySocketCompliance(() => harness())

  test('spreads flows over source ports, none of them the service port, and keeps each flow on its own', async () => {
    const exchange = new Exchange(harness({ sourcePorts: SOURCE_PORTS }))
    const frames = Array.from({ length: 40 }, (_, n) => ({ bytes: countingBytes(100, n), sender: n % SOURCE_PORTS }))
    expect(new Set(await exchange.sent(...frames))).toEqual(new Set([0]))
    const arrived = await exchange.arrived(40)
    const ports = frames.map(({ bytes }) => arrived.find((one) => Buffer.compare(one.bytes, bytes) === 0)?.port)
    expect(new Set(ports).size).toBe(SOURCE_PORTS)
    expect(ports.every((port, n) => port !== UNDERLAY_PORT && port === ports[n % SOURCE_PORTS])).toBe(true)
  })

  test('copies what it sends: the bytes are the caller’s again at once', async () => {
    const exchange = new Exchange(harness())
    exchange.send({ bytes: countingBytes(300) })
    exchange.harness.memory.bytes.fill(0xff, exchange.batch.iovecAt(0) + 64)
    expect((await exchange.arrived(1)).map(({ bytes }) => bytes)).toEqual([countingBytes(300)])
  })

  test('is full while much is under way, and says once when there is room again', async () => {
    const sockets = harness()
    const batch = oneDatagram(sockets.memory, countingBytes(100))
    let told = 0
    sockets.near.tellSettled(({ errno }) => {
      expect(errno).toBe(0)
      told += 1
    })
    for (let n = 0; n < 600; n++) sockets.near.send(batch)
    expect(sockets.near.isFull).toBe(true)
    await until(() => told === 600)
    expect(sockets.near.isFull).toBe(false)
    expect(sockets.rooms()).toBe(1)
  })

  test('tells of every datagram once, also of those under way when it is closed', async () => {
    const { memory, near } = harness()
    const told: number[] = []
    near.tellSettled(({ serial }) => void told.push(serial))
    const batch = oneDatagram(memory, countingBytes(100))
    for (let n = 0; n < 20; n++) {
      batch.firstSerial = n
      near.send(batch)
    }
    near.close()
    await until(() => told.length === 20)
    expect(told).toEqual([...Array(20).keys()])
  })

  test('says how many datagrams its full queue has lost', async () => {
    const { namespace, memory, far, farFd } = harness()
    libc.setsockopt(farFd, 1, 8, 0) // SO_RCVBUF: as little as the kernel allows
    const stranger = NamespaceSocket.udp(namespace, { to: [FAR, UNDERLAY_PORT] })
    onTestFinished(() => stranger.close())
    // In one turn of the loop: nothing is read meanwhile.
    for (let n = 0; n < 50; n++) stranger.writeNow(countingBytes(1000))
    await until(() => far.waiting > 0)
    await stranger.write(countingBytes(10))
    await until(() => far.waiting > 1)
    const slots = new ReceiveSlots(memory, 64)
    const received = far.receive(slots)
    expect(slots.overflowed).toBeGreaterThan(0)
    expect(received + slots.overflowed).toBe(51)
  })
})
