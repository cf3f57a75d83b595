// Times a case with Benchmark.js, and counts what its runs leave on the heap.
import Benchmark from 'benchmark'
import { watchHeap } from '../engine/scenario.ts'
import type { Subject } from './cases.ts'

export interface Measured {
  readonly nanosecondsPerPacket: number
  /** Relative margin of error of the time, percent (95 %). */
  readonly marginPercent: number
  /** What the heap grew by for each packet; `null` when a collection made it unknowable. */
  readonly heapBytesPerPacket: number | null
}

/** Packets between two looks at the heap: enough to see a byte each, too few for a collection as a rule. */
const WATCHED_PACKETS = 10_000
const ATTEMPTS = 5

/** Measures for about `seconds`, after what Benchmark.js needs to warm up. */
export async function measure({ run, packets }: Subject, seconds: number): Promise<Measured> {
  let kept: unknown
  const benchmark = new Benchmark(
    () => {
      kept = run()
    },
    { maxTime: seconds },
  )
  benchmark.run()
  if (benchmark.error !== undefined) throw benchmark.error
  const heapBytesPerPacket = await heapPerPacket(() => {
    kept = run()
  }, packets)
  if (kept === Infinity) throw new Error('no run gives that')
  return {
    nanosecondsPerPacket: (benchmark.stats.mean * 1e9) / packets,
    marginPercent: benchmark.stats.rme,
    heapBytesPerPacket,
  }
}

async function heapPerPacket(run: () => void, packets: number): Promise<number | null> {
  const runs = Math.ceil(WATCHED_PACKETS / packets)
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const { collections, heapBytes } = await watchHeap(() => {
      for (let round = 0; round < runs; round++) run()
    })
    if (collections === 0) return heapBytes / (runs * packets)
  }
  return null
}
