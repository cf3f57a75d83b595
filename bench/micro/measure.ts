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

/** Packets between two looks at the heap: many show a byte each, fewer are tried when so many cause a collection. */
const WATCHED_PACKETS = [100_000, 10_000, 1000, 100]
/** Runs before the measurement, as a part of its time: the compiler shall be done. */
const WARM_UP = 0.5

/** Measures for about `seconds`. */
export async function measure({ run, packets }: Subject, seconds: number): Promise<Measured> {
  const found: { last: unknown } = { last: null } // read by nobody, and the compiler cannot know
  const once = (): void => {
    found.last = run()
  }
  const until = performance.now() + WARM_UP * seconds * 1000
  while (performance.now() < until) once()
  const benchmark = new Benchmark(once, { maxTime: seconds })
  benchmark.run()
  if (benchmark.error !== undefined) throw new Error('the case failed', { cause: benchmark.error })
  return {
    nanosecondsPerPacket: (benchmark.stats.mean * 1e9) / packets,
    marginPercent: benchmark.stats.rme,
    heapBytesPerPacket: await heapPerPacket(once, packets),
  }
}

async function heapPerPacket(once: () => void, packets: number): Promise<number | null> {
  for (const watched of WATCHED_PACKETS) {
    const runs = Math.ceil(watched / packets)
    const { collections, heapBytes } = await watchHeap(() => {
      for (let round = 0; round < runs; round++) once()
    })
    if (collections === 0) return heapBytes / (runs * packets)
  }
  return null
}
