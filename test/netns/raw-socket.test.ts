// The raw driver's socket: outer headers of our own over the loopback of a namespace. The compliance suite, every outer
// byte, source ports, and what is too large for the link. Left out, with the reason, where raw-socket does not work.
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import * as libc from '../../dataplane/io/linux/libc.ts'
import { UdpSocket } from '../../dataplane/io/linux/udp-socket.ts'
import { openRawSender } from '../../dataplane/io/raw/raw-package.ts'
import { RawSocket } from '../../dataplane/io/raw/raw-socket.ts'
import { ReceiveSlots } from '../../dataplane/io/receive-slots.ts'
import { PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import type { FieldNote } from '../../dataplane/wire/field.ts'
import { describeLayers } from '../../dataplane/wire/layers.ts'
import {
  Exchange,
  FAR,
  NEAR,
  type SocketHarness,
  UNDERLAY_PORT,
  underlaySocketCompliance,
} from '../compliance/underlay-socket.ts'
import { Capture } from '../support/capture.ts'
import {
  addWideAddresses,
  loopbackAddress,
  oneDatagram,
  openOnLoopback,
  WIDE_LOOPBACK,
} from '../support/loopback-socket.ts'
import { inNetwork } from '../support/namespace-socket.ts'
import { ip as iproute, ownNamespace } from '../support/own-namespace.ts'
import { countingBytes, udpPacket } from '../support/packets.ts'
import { skipWithoutRawSocket } from '../support/raw-socket-here.ts'
import { vxlanFrame } from '../support/vxlan-frame.ts'

const MEMORY_BYTES = 16 * 1024 * 1024
const FIRST_PORT = 50_000

interface RawOptions {
  readonly mtu?: number
  readonly ports?: number
  readonly wide?: boolean
}

/** The package makes its socket when it is asked for: in the namespace. */
function harness({
  mtu = 65536,
  ports = 1,
  wide = false,
}: RawOptions = {}): SocketHarness & { readonly namespace: string } {
  const namespace = ownNamespace()
  iproute('-n', namespace, 'link', 'set', 'lo', 'mtu', String(mtu))
  if (wide) addWideAddresses(namespace)
  const addresses = wide ? { addresses: WIDE_LOOPBACK } : {}
  const memory = new PacketMemory(MEMORY_BYTES, libc.addressOf)
  const open = (address: string) => {
    const { fd, receivesMerged } = openOnLoopback(namespace, address, wide)
    onTestFinished(() => void libc.close(fd))
    return { socket: new UdpSocket(memory, { fd, maxSegments: 1, ...addresses }), merges: receivesMerged }
  }
  const [near, far] = [open(NEAR), open(FAR)]
  const sender = inNetwork(namespace, () => openRawSender(wide ? 6 : 4))
  if ('kind' in sender) throw new Error(sender.why)
  const firstPort = ports === 1 ? UNDERLAY_PORT : FIRST_PORT
  const address = loopbackAddress(NEAR, wide)
  const options = { sender, udpSocket: near.socket, address, ...addresses, firstPort, ports, pause: () => undefined }
  const raw = new RawSocket(memory, options)
  onTestFinished(() => raw.close())
  return {
    ...{ namespace, memory, near: raw, far: far.socket, merges: far.merges },
    deliver: (datagram) => raw.send(oneDatagram(memory, datagram)),
  }
}

const notesOf = (frame: Uint8Array) => describeLayers(frame, 0, frame.length, 'ethernet')

/** The field's value in the outermost header of that kind. */
function outer(notes: readonly FieldNote[], layer: string, name: string): string | undefined {
  return notes.find((note) => note.layer === layer && note.name === name)?.value
}

describe('a raw socket of IPv6', () => {
  beforeEach(skipWithoutRawSocket)

  underlaySocketCompliance(() => harness({ wide: true }))

  test('leaves what is too large for the link to the kernel, which fragments it', async () => {
    const exchange = new Exchange(harness({ wide: true, mtu: 1500 }))
    const frames = [1452, 1453, 9000].map((size, n) => ({ bytes: countingBytes(size, n), alone: true }))
    expect(exchange.send(...frames)).toEqual([0, 0, 0])
    expect(await exchange.arrived(3)).toHaveLength(3)
  })
})

describe('a raw socket', () => {
  beforeEach(skipWithoutRawSocket)

  underlaySocketCompliance(() => harness())

  test('leaves what is too large for the link to the kernel, which fragments it', async () => {
    const exchange = new Exchange(harness({ mtu: 1500 }))
    const frames = [1472, 1473, 9000].map((size, n) => ({ bytes: countingBytes(size, n), alone: true }))
    expect(exchange.send(...frames)).toEqual([0, 0, 0])
    const arrived = (await exchange.arrived(3)).map(({ bytes }) => bytes)
    expect(arrived).toHaveLength(3)
    for (const { bytes } of frames) expect(arrived.some((one) => Buffer.compare(one, bytes) === 0)).toBe(true)
  })

  test('sends every flow from its port of the range, without a socket there', async () => {
    const exchange = new Exchange(harness({ ports: 10_000 }))
    const senders = [0, 9999, 1, 0, 9999, 1]
    exchange.send(...senders.map((sender, n) => ({ bytes: countingBytes(60, n), sender })))
    const ports = (await exchange.arrived(senders.length)).map(({ port }) => port)
    expect(ports).toEqual(senders.map((sender) => FIRST_PORT + sender))
  })

  test('writes outer headers without a fault: addresses, ports, hops, marks, and both checksums', async () => {
    const sockets = harness({ ports: 10 })
    const filter = `udp and dst host ${FAR}`
    const capture = await Capture.start({ namespace: sockets.namespace, device: 'lo', direction: 'in', filter })
    const exchange = new Exchange(sockets)
    const odd = vxlanFrame(udpPacket({ payload: countingBytes(33) }))
    exchange.send({ bytes: odd, sender: 7, tos: 2 }, { bytes: vxlanFrame(udpPacket({})), sender: 3 })
    await expect.poll(() => capture.frames().length).toBe(2)
    const [first = [], second = []] = (await capture.stop()).map(notesOf)
    expect([...first, ...second].filter(({ problem }) => problem !== undefined)).toEqual([])
    const fixed = ['source', 'destination', 'ttl', 'ecn', 'flags'].map((name) => outer(first, 'IPv4', name))
    expect(fixed).toEqual([NEAR, FAR, '64', '2', '0x0'])
    expect(outer(first, 'UDP', 'sourcePort')).toBe(String(FIRST_PORT + 7))
    expect(outer(second, 'UDP', 'sourcePort')).toBe(String(FIRST_PORT + 3))
    expect(outer(first, 'UDP', 'checksum')).not.toBe('0x0000')
    expect(outer(first, 'IPv4', 'identification')).not.toBe(outer(second, 'IPv4', 'identification'))
  })

  test('works on after tens of thousands of sends', async () => {
    const sockets = harness()
    const exchange = new Exchange(sockets)
    const slots = new ReceiveSlots(sockets.memory, 16)
    exchange.send({ bytes: countingBytes(60) })
    for (let n = 0; n < 60_000; n++) {
      sockets.near.send(exchange.batch)
      if (n % 8 === 0) while (sockets.far.receive(slots) > 0);
    }
    expect(exchange.batch.errno[0]).toBe(0)
    expect((await exchange.arrived(1)).length).toBeGreaterThan(0)
  })
})
