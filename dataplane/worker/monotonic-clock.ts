// The engine's clock: one for all threads, so that the main thread can tell how long ago a worker saw something.

/**
 * CLOCK_MONOTONIC in milliseconds. Node's own `performance.now` has the origin of its thread, and is the cheapest to
 * read.
 */
export function monotonicClock(): () => number {
  const originMs = Number(process.hrtime.bigint()) / 1e6 - performance.now()
  return () => originMs + performance.now()
}
