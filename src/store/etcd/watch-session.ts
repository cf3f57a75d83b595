// One watch stream and its mailbox. Nobody waits for it without end: a stream that is not opened in time, or says
// nothing though it was asked to, has failed like one that broke.
import type { Clock, Timer } from '../../clock.ts'
import { FlanneletteError } from '../../errors.ts'
import { CompactedError, type EtcdCalls, type KeyRange, type WatchMessage, type WatchStream } from './calls.ts'

/** Milliseconds in which the server must confirm a watch. */
export const OPEN_LIMIT_MS = 5000
/** After so many milliseconds of silence the server is asked to say something, */
export const PROGRESS_MS = 10_000
/** and after so many the stream is given up. */
export const SILENCE_LIMIT_MS = 25_000
/** Between two looks at the clock that counts suspended time. */
const LOOK_MS = 5000
/**
 * A server that has created a watch may still find that its history does not reach back so far. It looks every 100 ms,
 * and until then answers no questions: so long it is left alone, and then asked until it says something.
 */
const CONFIRM_MS = 250

export class WatchSession {
  readonly #clock: Clock
  readonly #name: string
  readonly #openedAtMs: number
  #stream: WatchStream | null = null
  #mail: WatchMessage[] = []
  #failure: Error | null = null
  #wake: () => void = () => {}
  #heardAtMs: number
  #created = false
  /** It has said something after that. */
  #confirmed = false
  #timer: Timer | null = null

  /** `name` is how messages call the store. */
  constructor(clock: Clock, name: string) {
    this.#clock = clock
    this.#name = name
    this.#openedAtMs = clock.bootMs()
    this.#heardAtMs = this.#openedAtMs
  }

  /**
   * Resolves once the server has told something on the watch, if only that there is nothing. @throws what ended it
   * before
   */
  async open(calls: EtcdCalls, range: KeyRange, fromRevision: number): Promise<void> {
    this.#arm(OPEN_LIMIT_MS)
    const opening = calls.watch(range, fromRevision, {
      onMessage: (message) => this.#receive(message),
      onEnd: (error) => this.fail(error),
    })
    opening.then((stream) => this.#take(stream)).catch((error) => this.fail(error as Error))
    while (!this.#confirmed) {
      if (this.#failure !== null) throw this.#failure
      await this.#news()
    }
  }

  /** What has arrived since the last call, at least one message. @throws what ended the stream */
  async next(): Promise<readonly WatchMessage[]> {
    while (this.#mail.length === 0) {
      if (this.#failure !== null) throw this.#failure
      await this.#news()
    }
    const mail = this.#mail
    this.#mail = []
    return mail
  }

  /** Milliseconds since it was begun. */
  get ageMs(): number {
    return this.#clock.bootMs() - this.#openedAtMs
  }

  /** Ends it; a caller that waits gets the error. */
  fail(error: Error): void {
    if (this.#failure !== null) return
    this.#failure = error
    this.#timer?.cancel()
    this.#stream?.cancel()
    this.#wake()
  }

  #take(stream: WatchStream): void {
    if (this.#failure !== null) stream.cancel()
    this.#stream = stream
  }

  #receive(message: WatchMessage): void {
    if (this.#failure !== null) return
    this.#heardAtMs = this.#clock.bootMs()
    if (message.compactRevision !== 0) {
      this.fail(new CompactedError(message.compactRevision))
    } else if (message.canceled) {
      this.fail(this.#away(`the server cancelled the watch: ${message.reason || 'no reason'}`))
    } else if (message.created) {
      this.#created = true
      this.#arm(CONFIRM_MS)
    } else {
      if (!this.#confirmed) this.#arm(LOOK_MS)
      this.#confirmed = true
      this.#mail.push(message)
    }
    this.#wake()
  }

  #arm(delayMs: number): void {
    this.#timer?.cancel()
    this.#timer = this.#clock.after(delayMs, () => this.#look())
  }

  #look(): void {
    const silentMs = this.#clock.bootMs() - this.#heardAtMs
    if (!this.#created || (!this.#confirmed && this.ageMs >= OPEN_LIMIT_MS)) {
      this.fail(this.#away(`no watch within ${OPEN_LIMIT_MS / 1000} s`))
    } else if (!this.#confirmed) {
      this.#stream?.requestProgress()
      this.#arm(CONFIRM_MS)
    } else if (silentMs >= SILENCE_LIMIT_MS) {
      this.fail(this.#away(`the watch said nothing for ${Math.round(silentMs / 1000)} s`))
    } else {
      if (silentMs >= PROGRESS_MS) this.#stream?.requestProgress()
      this.#arm(LOOK_MS)
    }
  }

  #news(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve
    })
  }

  #away(why: string): FlanneletteError {
    const remedy = 'check that etcd and the network to it work'
    return new FlanneletteError('store-unreadable', `store ${this.#name}: ${why}`, { remedy, retryable: true })
  }
}
