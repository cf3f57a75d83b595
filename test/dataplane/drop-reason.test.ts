// Every reason for which the dataplane can drop a packet is produced here once, counted under its name and told as a
// step. A reason that is added without a packet that provokes it does not compile.
import { describe, expect, it } from 'vitest'
import { DROP_REASONS, type DropReason } from '../../dataplane/drop-reason.ts'
import * as errno from '../../dataplane/io/errno.ts'
import type { Direction, Step } from '../../dataplane/step.ts'
import { ETHERTYPE_IPV4 } from '../../dataplane/wire/ethernet.ts'
import { DESTINATION_OPTIONS } from '../../dataplane/wire/ipv6-extension.ts'
import { NODE_A, NODE_B, recordSteps } from '../support/engine-pair.ts'
import {
  countingBytes,
  type Extension,
  fromTun,
  IPV6,
  icmpEcho,
  ip,
  superFromTun,
  tcpPacket,
  udpPacket,
} from '../support/packets.ts'
import { tappedPair } from '../support/underlay-tap.ts'
import { type FrameOptions, vxlanFrame } from '../support/vxlan-frame.ts'

type Tapped = ReturnType<typeof tappedPair>
/** Makes node A drop something for that reason. */
type Provocation = (pair: Tapped) => void

/** Lost in the kernel's queues before anything was read: told by its own counters, never by the engine. */
type LostInKernel = 'tun-queue-full' | 'rx-queue-full'

const read =
  (packet: Uint8Array): Provocation =>
  ({ a }) =>
    a.sendFromTun(packet)

const failsWith =
  (number: number): Provocation =>
  ({ a, tap }) => {
    tap.refuse = () => number
    a.sendFromTun(fromTun(icmpEcho()))
  }

/** To node A: the fixture's frames go the other way by default. */
const toA = (inner: Uint8Array, options: FrameOptions = {}): Uint8Array =>
  vxlanFrame(inner, { destinationMac: NODE_A.mac, sourceMac: NODE_B.mac, ...options })

const fromB = { source: '10.244.2.3', destination: '10.244.1.2' }

const arrives =
  (datagram: Uint8Array, { from = NODE_B.underlay, tos = 0 } = {}): Provocation =>
  ({ a }) => {
    a.socket.deliver(datagram, ip(from), { tos })
    a.receive()
  }

const refusesWith =
  (number: number): Provocation =>
  (pair) => {
    pair.a.writeErrno = number
    arrives(toA(icmpEcho(fromB)))(pair)
  }

const truncatedArrival: Provocation = (pair) => {
  pair.tap.truncates = true
  arrives(toA(icmpEcho(fromB)))(pair)
}

/** A packet from node B with some bits of one byte flipped. */
const bent = (at: number, bits: number): Uint8Array =>
  icmpEcho(fromB).map((byte, index) => (index === at ? byte ^ bits : byte))

type Provoked = Partial<Record<Direction, Provocation>>
const outbound = (provocation: Provocation): Provoked => ({ outbound: provocation })
const inbound = (provocation: Provocation): Provoked => ({ inbound: provocation })

/** As many padding-only destination options. */
const extensions = (count: number): Extension[] =>
  Array.from({ length: count }, () => [DESTINATION_OPTIONS, Uint8Array.from([1, 4, 0, 0, 0, 0])])

const longHeaders = { ...IPV6, extensions: extensions(8), payload: countingBytes(300), checksum: 'partial' } as const

const PROVOKED: Record<Exclude<DropReason, LostInKernel>, Provoked> = {
  'vnet-inconsistent': outbound(read(fromTun(tcpPacket({ payload: countingBytes(9) }), { gsoType: 4, gsoSize: 3 }))),
  'no-route': outbound(read(fromTun(icmpEcho({ destination: '10.244.9.9' })))),
  'headers-too-long': outbound(read(superFromTun(tcpPacket(longHeaders), 100))),
  'too-big': outbound(read(fromTun(udpPacket({ payload: countingBytes(2000) })))),
  'link-local-or-multicast': outbound(read(fromTun(udpPacket({ destination: '224.0.0.22' })))),
  'tx-queue-full': outbound(failsWith(errno.EAGAIN)),
  'tx-nobufs': outbound(failsWith(errno.ENOBUFS)),
  'tx-unreachable': outbound(failsWith(errno.EHOSTUNREACH)),
  'tx-too-big': outbound(failsWith(errno.EMSGSIZE)),
  'tx-error': outbound(failsWith(errno.EIO)),
  'rx-truncated': inbound(truncatedArrival),
  'vxlan-short': inbound(arrives(new Uint8Array(21))),
  'vxlan-no-vni': inbound(arrives(toA(icmpEcho(fromB), { flags: 0 }))),
  'vxlan-reserved-bits': inbound(arrives(toA(icmpEcho(fromB), { reserved1: 1 }))),
  'vni-unknown': inbound(arrives(toA(icmpEcho(fromB), { vni: 4096 }))),
  'inner-destination-mac': inbound(arrives(vxlanFrame(icmpEcho(fromB)))),
  'inner-source-mac': inbound(arrives(toA(icmpEcho(fromB), { sourceMac: NODE_A.mac }))),
  'inner-ethertype': inbound(arrives(toA(icmpEcho(fromB), { etherType: 0x0806 }))),
  'unknown-peer': inbound(arrives(toA(icmpEcho(fromB)), { from: '192.0.2.77' })),
  'inner-source-spoofed': inbound(arrives(toA(icmpEcho({ ...fromB, source: '10.244.7.7' })))),
  'inner-destination-foreign': inbound(arrives(toA(icmpEcho({ ...fromB, destination: '10.244.7.7' })))),
  'ecn-illegal': inbound(arrives(toA(icmpEcho(fromB)), { tos: 3 })),
  'bad-checksum': inbound(arrives(toA(bent(10, 1)))),
  'tun-backpressure': inbound(refusesWith(errno.EAGAIN)),
  'tun-down': inbound(refusesWith(errno.EIO)),
  'tun-rejected': inbound(refusesWith(errno.EINVAL)),
  'tun-error': inbound(refusesWith(errno.EBADF)),
  'bad-version': inbound(arrives(toA(bent(0, 0x20), { etherType: ETHERTYPE_IPV4 }))),
  'not-ip': {
    outbound: read(fromTun(new Uint8Array(40))),
    inbound: arrives(new Uint8Array(40)),
  },
  'ttl-expired': {
    outbound: read(fromTun(icmpEcho({ ttl: 1 }))),
    inbound: arrives(icmpEcho({ ...fromB, ttl: 1 })),
  },
  'too-many-extensions': {
    outbound: read(fromTun(icmpEcho({ ...IPV6, extensions: extensions(9) }))),
    inbound: arrives(toA(icmpEcho({ ...IPV6, extensions: extensions(9) }))),
  },
  truncated: {
    outbound: read(fromTun(icmpEcho().slice(0, 50))),
    inbound: arrives(toA(icmpEcho(fromB).slice(0, 50))),
  },
  'bad-header-length': {
    outbound: read(fromTun(bent(0, 0x04))),
    inbound: arrives(toA(bent(0, 0x04))),
  },
}

/** A tunnel that counts as a hop, and one in which nothing but the packet says what it is. */
const OF_PLAIN_UDP = new Set<DropReason>(['ttl-expired', 'not-ip'])

const cases = Object.entries(PROVOKED).flatMap(([reason, provoked]) =>
  Object.entries(provoked).map(([direction, provoke]) => ({
    reason: reason as DropReason,
    direction: direction as Direction,
    provoke,
  })),
)

describe('a drop reason', () => {
  it.each(cases)('$reason is counted and told, $direction', ({ reason, direction, provoke }) => {
    const pair = tappedPair({ encapsulation: OF_PLAIN_UDP.has(reason) ? 'udp' : 'vxlan' })
    const steps = recordSteps(pair.a)
    provoke(pair)
    const { packets, bytes } = pair.a.counters.dropped(direction, reason)
    expect(packets).toBe(1)
    expect(pair.a.counters.get(`${direction}.packets.read`)).toBe(1)
    expect(pair.a.counters.get(`${direction}.bytes.read`)).toBe(bytes)
    expect(pair.a.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
    expect(steps.flatMap((step) => toldReason(step) ?? [])).toEqual([reason])
  })

  it('is given only in the directions that its table names', () => {
    for (const { reason, direction } of cases) expect([direction, 'both']).toContain(DROP_REASONS[reason].where)
  })
})

/** A failed send or write tells the errno, everything else the reason itself. */
function toldReason(step: Step): DropReason | undefined {
  if (step.kind === 'drop') return step.reason
  if (step.kind === 'send' && step.errno !== 0) return errno.reasonForSendErrno(step.errno)
  if (step.kind === 'tun-write' && step.errno !== 0) return errno.reasonForWriteErrno(step.errno)
  return undefined
}
