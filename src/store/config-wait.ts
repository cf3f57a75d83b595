// Waiting for a network config in a store that can be looked at without a server: look, wait for a hint or for the next
// slow look. Shared by the memory and the file store.
import { type Clock, delay } from '../clock.ts'

export interface ConfigSource {
  isThere(): boolean
  /** Calls `wake` on every hint of a change until the returned function is called. */
  subscribe(wake: () => void): () => void
  readonly clock: Clock
  /** Milliseconds until the next look without a hint. */
  readonly nextLookMs: number
}

/** See `LeaseStore.awaitNetworkConfig`. */
export async function awaitConfig(source: ConfigSource, signal: AbortSignal): Promise<void> {
  let hint = new AbortController()
  const wake = () => hint.abort()
  const unsubscribe = source.subscribe(wake)
  signal.addEventListener('abort', wake)
  try {
    while (!signal.aborted) {
      // Armed before looking: what comes during the look wakes the wait below.
      hint = new AbortController()
      if (source.isThere()) return
      await delay(source.clock, source.nextLookMs, hint.signal)
    }
  } finally {
    unsubscribe()
    signal.removeEventListener('abort', wake)
  }
}
