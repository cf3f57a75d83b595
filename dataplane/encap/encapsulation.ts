// What a tunnel puts around an inner packet inside the UDP payload, and how it is taken off again.
import type { DropReason } from '../drop-reason.ts'
import type { ForwardingTable } from '../forwarding/forwarding-table.ts'

export interface Encapsulation {
  readonly name: string
  /** Bytes in front of the inner IP packet, within the UDP payload. */
  readonly headerBytes: number
  /**
   * Writes the header for the peer behind that table entry at `at`; overwrites each of its `headerBytes` bytes.
   * `version` is that of the inner IP packet.
   */
  write(view: DataView, at: number, table: ForwardingTable, entry: number, version: number): void
  /** Checks the header of a received frame of `length` bytes at `at`: null when the inner packet may be looked at. */
  check(view: DataView, at: number, length: number): DropReason | null
}
