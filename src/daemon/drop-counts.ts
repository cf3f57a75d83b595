// What became of packets that were not passed on, out of the counters of a status: in one place for all who tell of it.
import { DROP_REASON_NAMES, type DropReason } from '../../dataplane/index.ts'
import type { DaemonStatus } from './status-file.ts'

export interface DropCount {
  readonly direction: 'outbound' | 'inbound'
  readonly reason: DropReason
  /** Also those that the kernel lost before they were read. */
  readonly packets: number
}

/** Each reason of each direction, those without a packet too. */
export function dropCounts(counters: DaemonStatus['counters']): DropCount[] {
  return (['outbound', 'inbound'] as const).flatMap((direction) =>
    DROP_REASON_NAMES.map((reason) => {
      const count = (how: string) => counters[`${direction}.${how}.${reason}`] ?? 0
      return { direction, reason, packets: count('dropped') + count('lost') }
    }),
  )
}

/** All of them; `null` where nobody knows: the kernel drops without a word to the device. */
export function droppedPackets({ dataplane, counters }: Pick<DaemonStatus, 'dataplane' | 'counters'>): number | null {
  return dataplane === 'kernel' ? null : dropCounts(counters).reduce((sum, { packets }) => sum + packets, 0)
}
