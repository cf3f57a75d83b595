// Everything that can happen to a packet, as data. The engine emits these through a sink that is null when nobody
// looks; command line, web page, log and diagrams read the same steps. Words about them live with the readers.
//
// A packet id is a hash of inner fields that encapsulation leaves alone, so it is equal at every capture point and on
// every host. A super-packet has an id of its own and one for each packet it stands for: both views are kept.
// Offsets (`at`) point into the worker's packet memory and are valid only during the call.
import type { DropReason } from './drop-reason.ts'
import type { ForwardingEntry, UnderlayAddress } from './forwarding/remote-vtep.ts'

export type Direction = 'outbound' | 'inbound'

/** What became of a transport checksum. */
export type ChecksumVerdict = 'completed' | 'verified' | 'partial' | 'unused' | 'bad'

export type Step =
  // outbound: TUN → underlay, numbered as in engine/outbound.ts
  | {
      readonly kind: 'tun-read'
      readonly id: number
      readonly at: number
      readonly length: number
      readonly gsoType: number
      readonly gsoSize: number
      readonly needsChecksum: boolean
    }
  | {
      readonly kind: 'lookup'
      readonly id: number
      readonly destination: number | bigint
      readonly generation: number
      readonly entry: ForwardingEntry | null
    }
  | { readonly kind: 'fit'; readonly id: number; readonly length: number; readonly mtuBytes: number }
  | {
      readonly kind: 'segment'
      readonly id: number
      readonly parent: number
      readonly index: number
      readonly at: number
      readonly headerLength: number
      readonly payloadAt: number
      readonly payloadLength: number
    }
  | { readonly kind: 'checksum'; readonly id: number; readonly verdict: ChecksumVerdict }
  | {
      readonly kind: 'encap'
      readonly id: number
      readonly at: number
      readonly headerLength: number
      readonly outerTos: number
      readonly message: number
    }
  | {
      readonly kind: 'send'
      readonly message: number
      readonly address: UnderlayAddress
      readonly port: number
      readonly packets: number
      readonly bytes: number
      readonly segmentSize: number
      readonly errno: number
    }
  // inbound: underlay → TUN, numbered as in engine/inbound.ts
  | {
      readonly kind: 'receive'
      readonly datagram: number
      readonly at: number
      readonly length: number
      readonly address: UnderlayAddress
      readonly port: number
      readonly tos: number
      readonly segmentSize: number
    }
  | {
      readonly kind: 'decap'
      readonly id: number
      readonly datagram: number
      readonly at: number
      readonly length: number
    }
  | {
      readonly kind: 'source-check'
      readonly id: number
      readonly source: number | bigint
      readonly generation: number
      readonly entry: ForwardingEntry | null
    }
  | {
      readonly kind: 'ecn'
      readonly id: number
      readonly innerBefore: number
      readonly outer: number
      readonly inner: number
    }
  | { readonly kind: 'merge'; readonly id: number; readonly into: number; readonly index: number }
  | {
      readonly kind: 'tun-write'
      readonly id: number
      readonly packets: number
      readonly bytes: number
      readonly gsoType: number
      readonly gsoSize: number
      readonly errno: number
    }
  // either way
  | {
      readonly kind: 'drop'
      readonly id: number
      readonly direction: Direction
      readonly reason: DropReason
      readonly at: number
      readonly length: number
    }
  | {
      readonly kind: 'icmp-answer'
      readonly id: number
      readonly to: number | bigint
      readonly type: number
      readonly code: number
      readonly suppressed: boolean
    }

export type StepKind = Step['kind']

/** Where a step stands in its direction's flow (0: not part of one flow), and what it is. */
export const STEPS = {
  'tun-read': { direction: 'outbound', number: 1, about: 'read from the TUN' },
  lookup: { direction: 'outbound', number: 3, about: 'longest prefix in the forwarding table' },
  fit: { direction: 'outbound', number: 4, about: 'compared with the MTU' },
  segment: { direction: 'outbound', number: 5, about: 'cut out of a super-packet' },
  checksum: { direction: 'both', number: 5, about: 'transport checksum completed or verified' },
  encap: { direction: 'outbound', number: 6, about: 'encapsulated and put into a send' },
  send: { direction: 'outbound', number: 7, about: 'handed to the UDP socket' },
  receive: { direction: 'inbound', number: 1, about: 'received from the UDP socket' },
  decap: { direction: 'inbound', number: 2, about: 'tunnel headers checked and taken off' },
  'source-check': { direction: 'inbound', number: 3, about: "inner source compared with the sender's lease" },
  ecn: { direction: 'inbound', number: 4, about: 'congestion bits of outer and inner header combined' },
  merge: { direction: 'inbound', number: 6, about: 'joined into a super-packet' },
  'tun-write': { direction: 'inbound', number: 7, about: 'written to the TUN' },
  drop: { direction: 'both', number: 0, about: 'not passed on, for the reason given' },
  'icmp-answer': { direction: 'both', number: 0, about: 'the pod was told why' },
} as const satisfies Record<StepKind, { direction: Direction | 'both'; number: number; about: string }>

/** Whoever looks. Called on the worker's thread, in the order in which things happen; must not throw. */
export interface StepSink {
  step(step: Step): void
}
