// A mover on an event loop that has other things to do as well: its sleep is a poll(2) on a thread of libuv's pool, its
// turns run between other events. For drivers whose packets come through the loop.
import * as libc from '../io/linux/libc.ts'
import type { WorkerCommand, WorkerReport, WorkerSetup } from './messages.ts'
import { Mover } from './mover.ts'

/** Longest sleep, milliseconds: a thread of the pool cannot be called back from it. */
const SLEEP_MS = 1000

export interface TurnsContact {
  hear(): WorkerCommand | undefined
  report(what: WorkerReport): void
  /** Stopped, as it was told to, or by an error. It is closed then. */
  onEnd(error: Error | null): void
}

export class EventLoopTurns {
  readonly #setup: WorkerSetup
  readonly #contact: TurnsContact
  readonly #mover: Mover
  #ended = false
  #failedWaits = 0

  /** Starts at once. @throws Error when the driver cannot be opened */
  constructor(setup: WorkerSetup, contact: TurnsContact) {
    this.#setup = setup
    this.#contact = contact
    this.#mover = new Mover(setup, {
      hear: () => contact.hear(),
      report: (what) => contact.report(what),
      onReceivable: () => void setImmediate(() => this.#guarded(() => this.#receive())),
      // The poll that is under way leaves the device out.
      onRoom: () => this.#wake(),
    })
    this.#sleep()
  }

  /** Ends between two turns, without waiting for one; a poll under way finds nobody any more. */
  end(error: Error | null): void {
    if (this.#ended) return
    this.#ended = true
    this.#wake() // a thread cannot end before its poll does
    this.#mover.close()
    this.#contact.onEnd(error)
  }

  #sleep(): void {
    this.#mover.tell()
    this.#mover.holdBack()
    this.#mover.waits.waitAside(SLEEP_MS, (ready) => this.#guarded(() => this.#turn(ready)))
  }

  #turn(ready: number): void {
    // Once may be a signal; the pool's thread keeps the errno to itself.
    this.#failedWaits = ready < 0 ? this.#failedWaits + 1 : 0
    if (this.#failedWaits > 1) throw new Error('poll failed twice in a row')
    // Not at once: what was sent in this turn is told of first, and other events get theirs.
    if (this.#mover.turn(ready)) setImmediate(() => this.#guarded(() => this.#sleep()))
    else this.end(null)
  }

  #receive(): void {
    this.#mover.receive()
    if (this.#mover.driver.waiting() > 0) setImmediate(() => this.#guarded(() => this.#receive()))
  }

  /** Ends the poll that is under way. */
  #wake(): void {
    libc.eventfdWrite(this.#setup.wakeFd, 1)
  }

  #guarded(action: () => void): void {
    if (this.#ended) return
    try {
      action()
    } catch (error) {
      this.end(error instanceof Error ? error : new Error(String(error)))
    }
  }
}
