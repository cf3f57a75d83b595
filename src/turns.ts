// Work that must not overlap: each piece waits for those that were asked for before it.

export class Turns {
  #tail: Promise<unknown> = Promise.resolve()

  /** Runs `work` after all that came before, whatever became of that; rejects as it does. */
  take<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#tail.then(work)
    this.#tail = done.catch(() => {})
    return done
  }

  /** Resolves once all that was asked for by now has ended. Never rejects. */
  async ended(): Promise<void> {
    await this.#tail
  }
}
