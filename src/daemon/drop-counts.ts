// What a status' counters say of packets that were not passed on: the one reading of them, for everything that tells of
// drops.
import { DROP_REASON_NAMES, DROP_REASONS } from '../../dataplane/index.ts'
import type { DaemonStatus } from './status-file.ts'

/** Stands for all reasons of the kernel dataplane, which tells numbers only. */
const KERNEL_REASON = 'kernel'

export interface DropCount {
  readonly direction: 'outbound' | 'inbound'
  /** A DropReason, or {@link KERNEL_REASON}. */
  readonly reason: string
  readonly packets: number
  /** One sentence. */
  readonly about: string
}

type Counters = DaemonStatus['counters']

/** Each reason that is counted, with 0 as well; also packets that the kernel lost before they were read. */
export function dropCounts(counters: Counters): DropCount[] {
  return (['outbound', 'inbound'] as const).flatMap((direction) => [
    ...DROP_REASON_NAMES.flatMap((reason): DropCount[] => {
      const packets = sumOf(counters, [`${direction}.dropped.${reason}`, `${direction}.lost.${reason}`])
      return packets === null ? [] : [{ direction, reason, packets, about: DROP_REASONS[reason].about }]
    }),
    ...droppedByKernel(counters, direction),
  ])
}

/** All of them together; `null` where nobody counts. */
export function droppedPackets({ counters }: Pick<DaemonStatus, 'counters'>): number | null {
  const drops = dropCounts(counters)
  return drops.length === 0 ? null : drops.reduce((sum, { packets }) => sum + packets, 0)
}

function droppedByKernel(counters: Counters, direction: 'outbound' | 'inbound'): DropCount[] {
  const packets = sumOf(counters, [`${direction}.dropped`, `${direction}.errors`])
  const about = "the kernel's device dropped them, and tells no reason"
  return packets === null ? [] : [{ direction, reason: KERNEL_REASON, packets, about }]
}

/** Of the counters that are there; `null` when none is. */
function sumOf(counters: Counters, names: readonly string[]): number | null {
  const values = names.flatMap((name) => counters[name] ?? [])
  return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0)
}
