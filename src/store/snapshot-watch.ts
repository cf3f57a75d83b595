// Watching a store that can be read whole: read, report what is new, wait for a hint or for the next slow look. Shared
// by the memory and the file store. Level-triggered, so a missed or merged hint costs time, never a change.
import { type Clock, delay } from '../clock.ts'
import { FlanneletteError } from '../errors.ts'
import type { LeaseNews } from './lease-store.ts'

export interface SnapshotSource {
  /** All live leases. @throws FlanneletteError `store-unreadable` */
  snapshot(): Omit<Extract<LeaseNews, { type: 'snapshot' }>, 'type'>
  /** Calls `wake` on every hint of a change until the returned function is called. */
  subscribe(wake: () => void): () => void
  readonly clock: Clock
  /** Milliseconds until the next look without a hint: bounds how late an expiry or a lost hint is noticed. */
  nextLookMs(): number
}

/** See `LeaseStore.watch`. */
export async function* watchSnapshots(source: SnapshotSource, signal: AbortSignal): AsyncGenerator<LeaseNews> {
  let hint = new AbortController()
  const unsubscribe = source.subscribe(() => hint.abort())
  signal.addEventListener('abort', () => hint.abort())
  let last = ''
  try {
    while (!signal.aborted) {
      // Armed before reading: a change during or after the read wakes the wait below.
      hint = new AbortController()
      const news = look(source)
      const seen = fingerprint(news)
      if (seen !== last) {
        last = seen
        yield news
      }
      if (!signal.aborted) await delay(source.clock, source.nextLookMs(), hint.signal)
    }
  } finally {
    unsubscribe()
  }
}

/** A renewal changes the revision; the expiry alone may move by the steps of a clock and is no news. */
function fingerprint(news: LeaseNews): string {
  return JSON.stringify(news, (name, value: unknown) => (name === 'expiresAtMs' ? value === null : value))
}

function look(source: SnapshotSource): LeaseNews {
  try {
    return { type: 'snapshot', ...source.snapshot() }
  } catch (error) {
    if (error instanceof FlanneletteError) return { type: 'disconnected', why: error.message }
    throw error
  }
}
