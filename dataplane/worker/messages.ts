// What main thread and worker say to each other. Descriptors are opened by the main thread and passed as numbers: all
// threads of a process share them. Counters and tables are shared memory.

import type { Offender } from '../engine/offenders.ts'
import type { EngineSettings } from '../engine/settings.ts'
import type { UnderlayAddress } from '../forwarding/remote-vtep.ts'
import type { PathFds } from '../io/linux/udp-open.ts'
import type { Step } from '../step.ts'

/**
 * `plain`: a TUN without virtio-net headers, and one packet a system call in every direction. `dgram`: Node's own
 * sockets, see io/node/dgram-socket.ts. `raw`: outer headers of our own, see io/raw/raw-socket.ts.
 */
export type WorkerDriver = 'offload' | 'plain' | 'dgram' | 'raw'

/** So many source ports from the first one on. */
export interface RawPorts {
  readonly firstPort: number
  readonly ports: number
}

/** Everything a worker needs from its first moment on. */
export interface WorkerSetup {
  readonly driver: WorkerDriver
  readonly tunFd: number
  readonly socketFd: number
  /** Sockets that only send, one for each source port; with none, all is sent from the service port. */
  readonly senderFds: readonly number[]
  /** Sockets for the ways to peers, where the others were opened with DF set; `null` where they were not. */
  readonly pathFds: PathFds | null
  /** Own underlay address, of the sockets' family, and the ports of flows: what the raw driver writes into its headers. */
  readonly underlayAddress: UnderlayAddress
  readonly rawPorts: RawPorts
  /** eventfd that is written to after each command. */
  readonly wakeFd: number
  readonly maxSegments: number
  readonly encapsulation: 'vxlan' | 'udp'
  /** 0 where the encapsulation has none, as is the MAC. */
  readonly vni: number
  /** Own VTEP MAC, a 48-bit number. */
  readonly mac: number
  readonly settings: EngineSettings
  readonly counters: SharedArrayBuffer
}

export type WorkerCommand =
  /** A new forwarding table, encoded, and memory for the activity of its peers; in force from the next packet on. */
  | { readonly type: 'table'; readonly table: SharedArrayBuffer; readonly activity: SharedArrayBuffer }
  /** Record at most this many steps, then stop looking; 0 stops at once. */
  | { readonly type: 'trace'; readonly steps: number }
  /** Largest inner packet from now on; a smaller one than before holds once the device has been emptied. */
  | { readonly type: 'mtu'; readonly mtuBytes: number }
  /** The TUN was opened anew. */
  | { readonly type: 'device'; readonly fd: number }
  /** A pause after a standstill is over. */
  | { readonly type: 'go' }
  | { readonly type: 'stop' }

export type WorkerReport =
  /** The table of that generation is in force. */
  | { readonly type: 'table'; readonly generation: number }
  /** Packets up to that size are taken. */
  | { readonly type: 'mtu'; readonly mtuBytes: number }
  | { readonly type: 'steps'; readonly steps: readonly RecordedStep[] }
  /** Reading failed; the descriptor is left alone until it is replaced. */
  | { readonly type: 'device-failed'; readonly errno: number }
  | { readonly type: 'socket-failed'; readonly errno: number }
  /** It stood still, and waits for the word to go on; CLOCK_MONOTONIC went on by so much. */
  | { readonly type: 'woke'; readonly standstillMs: number }
  /** Who was refused by the source check since the last such report; at most one a second. */
  | { readonly type: 'offenders'; readonly offenders: readonly Offender[] }
  | { readonly type: 'stopped' }

/** A step with the time at which it happened and, where it has bytes, a copy of them. */
export interface RecordedStep {
  /** CLOCK_MONOTONIC, nanoseconds: comparable between processes of one machine. */
  readonly timeNs: bigint
  readonly step: Step
  /** Bytes that the step is about (the whole packet or frame, up to the snap length), as hex; empty for none. */
  readonly snap: string
}
