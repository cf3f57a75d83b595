// No call to a store waits for ever: after a bounded time it counts as failed, whatever the connection does.
import type { Clock } from '../clock.ts'
import { FlanneletteError } from '../errors.ts'

/** Milliseconds after which a store call counts as failed. With a tick of 30 s attempts stay at most 60 s apart. */
const STORE_DEADLINE_MS = 20_000

/** The call's result. @throws FlanneletteError `store-unreadable` (retryable) when the deadline passes first */
export function withDeadline<T>(clock: Clock, call: Promise<T>, storeName: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = clock.after(STORE_DEADLINE_MS, () => {
      const message = `store ${storeName} did not answer within ${STORE_DEADLINE_MS / 1000} s`
      reject(new FlanneletteError('store-unreadable', message, { remedy: 'check that it is running', retryable: true }))
    })
    call.then(resolve, reject).finally(() => timer.cancel())
  })
}
