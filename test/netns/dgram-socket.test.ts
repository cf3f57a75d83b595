// The dgram driver's socket on the real kernel, over the loopback of a namespace: the compliance suite, source ports,
// what is under way, and failures that Node tells of later.
import { setImmediate as immediate } from 'node:timers/promises'
import { describe, expect, onTestFinished, test } from 'vitest'
import { EINPROGRESS } from '../../dataplane/io/errno.ts'
import * as libc from '../../dataplane/io/linux/libc.ts'
import { openSenders, receiveOneByOne } from '../../dataplane/io/linux/udp-open.ts'
import { DgramSocket, type DgramSocketOptions } from '../../dataplane/io/node/dgram-socket.ts'
import { ReceiveSlots } from '../../dataplane/io/receive-slots.ts'
import type { Settled } from '../../dataplane/io/underlay-socket.ts'
import { PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import {
  Exchange,
  FAR,
  NEAR,
  type SocketHarness,
  UNDERLAY_PORT,
  underlaySocketCompliance,
} from '../compliance/underlay-socket.ts'
import {
  addWideAddresses,
  loopbackAddress,
  oneDatagram,
  openOnLoopback,
  WIDE_LOOPBACK,
} from '../support/loopback-socket.ts'
import { inNetwork, NamespaceSocket } from '../support/namespace-socket.ts'
import { ownNamespace } from '../support/own-namespace.ts'
import { countingBytes } from '../support/packets.ts'
import { slowLoopback, until } from '../support/running-worker.ts'

const MEMORY_BYTES = 16 * 1024 * 1024
const SOURCE_PORTS = 4
const SOL_SOCKET = 1
const SO_SNDBUF = 7
const SO_RCVBUF = 8

interface DgramHarness extends SocketHarness {
  readonly namespace: string
  readonly near: DgramSocket
  readonly far: DgramSocket
  readonly nearFd: number
  readonly farFd: number
  /** How often the near socket said that there is room again. */
  rooms(): number
}

function harness({ sourcePorts = 0, wide = false } = {}): DgramHarness {
  const namespace = ownNamespace()
  if (wide) addWideAddresses(namespace)
  const memory = new PacketMemory(MEMORY_BYTES, libc.addressOf)
  let rooms = 0
  const socketOf = (fd: number, rest: Partial<DgramSocketOptions> = {}) => {
    const socket = new DgramSocket(memory, {
      ...{ fd, lost: () => libc.socketDrops(fd), onReceivable: () => undefined },
      onRoom: () => {
        rooms += 1
      },
      ...(wide ? { addresses: WIDE_LOOPBACK } : {}),
      ...rest,
    })
    onTestFinished(() => socket.close())
    return socket
  }
  const [nearFd, farFd] = [NEAR, FAR].map((address) => openOnLoopback(namespace, address, wide).fd) as [number, number]
  for (const fd of [nearFd, farFd]) receiveOneByOne(fd)
  const senderFds = inNetwork(namespace, () => openSenders(loopbackAddress(NEAR, wide), sourcePorts))
  const near = socketOf(nearFd, { senderFds })
  const far = socketOf(farFd)
  const fates = new Map<number, number>()
  near.tellSettled(({ serial, errno }) => fates.set(serial, errno))
  return {
    ...{ namespace, memory, near, far, nearFd, farFd, rooms: () => rooms, merges: false, marks: false },
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

const frameOf = (n: number) => ({ bytes: countingBytes(900 + (n % 7), n) })

describe('a socket of Node of IPv6', () => underlaySocketCompliance(() => harness({ wide: true })))

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

  test('stays full while the link is slow, keeps what it has, and sends all of it in order', async () => {
    const sockets = harness()
    slowLoopback(sockets.namespace)
    libc.setsockopt(sockets.nearFd, SOL_SOCKET, SO_SNDBUF, 0)
    const exchange = new Exchange(sockets)
    const told: Settled[] = []
    sockets.near.tellSettled((settled) => void told.push(settled))
    for (let n = 0; n < 15; n++) exchange.send(...Array.from({ length: 40 }, (_, k) => frameOf(n * 40 + k)))
    for (let turns = 0; turns < 20; turns++) await immediate()
    expect(sockets.near.isFull).toBe(true)
    expect(told.length).toBeLessThan(300)
    await until(() => told.length === 600)
    expect(told.every(({ errno }) => errno === 0)).toBe(true)
    expect([sockets.near.isFull, sockets.rooms()]).toEqual([false, 1])
    const arrived = await exchange.arrived(600)
    expect(arrived.map(({ bytes }) => bytes)).toEqual([...Array(600).keys()].map((n) => frameOf(n).bytes))
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
    libc.setsockopt(farFd, SOL_SOCKET, SO_RCVBUF, 0) // as little as the kernel allows
    const stranger = NamespaceSocket.udp(namespace, { to: [FAR, UNDERLAY_PORT] })
    onTestFinished(() => stranger.close())
    // In one turn of the loop: nothing is read meanwhile.
    for (let n = 0; n < 50; n++) stranger.writeNow(countingBytes(1000))
    await until(() => far.waiting > 0)
    await stranger.write(countingBytes(10))
    const slots = new ReceiveSlots(memory, 64)
    let received = 0
    await until(() => {
      received += far.receive(slots)
      return received + slots.overflowed >= 51
    })
    expect(slots.overflowed).toBeGreaterThan(0)
    expect(received + slots.overflowed).toBe(51)
  })
})
