// Underlays with faults over which a byte stream must arrive whole, and what must be true of each transfer.
import type { expect as Expect } from 'vitest'
import type { Faults } from '../../dataplane/middleware/fault-injector.ts'
import { transfer } from './stream-transfer.ts'

export interface FaultyUnderlay {
  readonly name: string
  readonly faults: Faults
  /** Whether segments get lost, so that the sender must repeat them. */
  readonly loses: boolean
}

export const FAULTY_UNDERLAYS: readonly FaultyUnderlay[] = [
  { name: 'no faults', faults: {}, loses: false },
  { name: '2 % reordering', faults: { reorder: 0.02 }, loses: false },
  { name: '1 % loss and 1 % duplication', faults: { loss: 0.01, duplicate: 0.01 }, loses: true },
  { name: 'loss, duplication and reordering', faults: { loss: 0.01, duplicate: 0.01, reorder: 0.05 }, loses: true },
]

export function checkTransfer({ faults, loses }: FaultyUnderlay, bytes: number, expect: typeof Expect): void {
  const { sent, received, repeated, duplicates, writes, a, b } = transfer({ bytes, faults, seed: 20_240_607 })
  expect(received).toBe(sent)
  expect(repeated > 0).toBe(loses)
  expect(duplicates > 0).toBe((faults.duplicate ?? 0) > 0)
  for (const node of [a, b]) expect(node.counters.imbalance()).toEqual({ packets: 0, bytes: 0 })
  expect(b.counters.get('inbound.checksum.bad')).toBe(0)
  // Merging goes on in spite of the faults.
  expect(writes).toBeLessThan(b.counters.get('inbound.packets.passed') / 2)
}
