// Leases in a directory, for daemons that share a machine (in any network namespace). No server:
//
//   DIR/config           the network config, JSON
//   DIR/subnets/<key>    one lease: flannel's value on the first line, expiry and revision on the second; the expiry on
//                        the wall clock for people and other boots, and on the boot clock, which counts while it runs
//   DIR/revision         how many changes there were; the next one gets a higher number
//   DIR/lock             flock(2) around every change
//
// A reader needs no lock: each file is replaced whole. A file without a second line is a reservation that never
// expires.
import { existsSync, mkdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { sweepTemporaryFiles, writeFileAtomically } from '../atomic-file.ts'
import type { Clock } from '../clock.ts'
import { FlanneletteError } from '../errors.ts'
import type { Halves, Lease } from '../lease/lease.ts'
import type { Log } from '../log.ts'
import { awaitConfig } from './config-wait.ts'
import { watchDirectory } from './directory-watch.ts'
import { withFileLock } from './file-lock.ts'
import { LeaseBook, type LeaseChange, leaseOf } from './lease-book.ts'
import { LARGEST_REVISION, LeaseFiles } from './lease-files.ts'
import type { AcquireRequest, LeaseNews, LeaseStore, UnreadableEntry } from './lease-store.ts'
import { watchSnapshots } from './snapshot-watch.ts'

/** How long a change waits for the lock before it fails (retryable), in milliseconds. */
const LOCK_PATIENCE_MS = 5000
const POLL_MS = 1000

export interface FileStoreOptions {
  readonly clock: Clock
  readonly log: Log
  /** Numbers in [0, 1), for the choice among free subnets. */
  readonly random: () => number
}

export class FileStore implements LeaseStore {
  readonly name: string
  readonly renewal = 'by-margin'
  readonly remote = false
  readonly #directory: string
  readonly #options: FileStoreOptions
  readonly #files: LeaseFiles

  constructor(directory: string, options: FileStoreOptions) {
    this.name = `file:${directory}`
    this.#directory = directory
    this.#options = options
    this.#files = new LeaseFiles(`${directory}/subnets`, options.log, options.clock)
  }

  async readNetworkConfig(): Promise<string> {
    this.#requireDirectory()
    const path = `${this.#directory}/config`
    try {
      return readFileSync(path, 'utf8')
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw this.#asStoreError(error)
      const example = `{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}}`
      const remedy = `write one, for example: echo '${example}' > ${path}`
      throw new FlanneletteError('config-missing', `there is no network config at ${path}`, { remedy, retryable: true })
    }
  }

  awaitNetworkConfig(signal: AbortSignal): Promise<void> {
    const source = {
      clock: this.#options.clock,
      nextLookMs: POLL_MS,
      subscribe: (wake: () => void) => watchDirectory(this.#directory, wake),
      isThere: () => existsSync(`${this.#directory}/config`),
    }
    return awaitConfig(source, signal)
  }

  acquire(request: AcquireRequest): Promise<Lease> {
    const { log, random } = this.#options
    const note = (sentence: string) => log.warn('previous-subnet-unavailable', sentence)
    return this.#change((book) => book.acquire(request, random, note))
  }

  renew(lease: Lease): Promise<Lease> {
    return this.#change((book) => book.renew(lease))
  }

  release(lease: Lease): Promise<void> {
    return this.#change((book) => book.release(lease))
  }

  async read(own: Halves): Promise<Lease | null> {
    return leaseOf(this.#book().leases(), own)
  }

  watch(signal: AbortSignal): AsyncIterable<LeaseNews> {
    const source = {
      clock: this.#options.clock,
      nextLookMs: () => POLL_MS,
      subscribe: (wake: () => void) => watchDirectory(`${this.#directory}/subnets`, wake),
      snapshot: () => {
        const { book, unreadable } = this.#look()
        const leases = book.leases()
        return { revision: book.revision, leases, ...(unreadable.length === 0 ? {} : { unreadable }) }
      },
    }
    return watchSnapshots(source, signal)
  }

  async publishReady(): Promise<void> {}

  async close(): Promise<void> {}

  async #change<T>(operation: (book: LeaseBook) => T): Promise<T> {
    this.#requireDirectory()
    try {
      mkdirSync(`${this.#directory}/subnets`, { recursive: true, mode: 0o755 })
      const done = await withFileLock(`${this.#directory}/lock`, LOCK_PATIENCE_MS, () => {
        const book = this.#book()
        const result = operation(book)
        if (book.changes.length > 0) this.#write(book.revision, book.changes)
        return result
      })
      if (done !== null) return done.value
    } catch (error) {
      throw this.#asStoreError(error)
    }
    throw this.#unreadable(`another process held its lock for ${LOCK_PATIENCE_MS / 1000} s`)
  }

  /** The revision first: after a crash in between a number is skipped, never given out twice. */
  #write(revision: number, changes: readonly LeaseChange[]): void {
    sweepTemporaryFiles(this.#directory)
    sweepTemporaryFiles(`${this.#directory}/subnets`)
    // The flush of the lease file below takes the revision along on most file systems; no daemon survives a power cut.
    writeFileAtomically(`${this.#directory}/revision`, `${revision}\n`, { mode: 0o644, durable: false })
    const options = { mode: 0o644, durable: true }
    for (const change of changes) {
      const path = `${this.#directory}/subnets/${change.key}`
      if (change.type === 'put') writeFileAtomically(path, this.#files.format(change.lease), options)
      else rmSync(path, { force: true })
    }
  }

  #book(): LeaseBook {
    return this.#look().book
  }

  #look(): { readonly book: LeaseBook; readonly unreadable: readonly UnreadableEntry[] } {
    this.#requireDirectory()
    try {
      // An empty directory (a file system that is not mounted) is no store without leases: it is no store.
      statSync(`${this.#directory}/config`)
      const { leases, blocked, unreadable } = this.#files.read()
      return { book: new LeaseBook(leases, this.#readRevision(), this.#options.clock.wallMs(), blocked), unreadable }
    } catch (error) {
      throw this.#asStoreError(error)
    }
  }

  #readRevision(): number {
    try {
      const revision = Number.parseInt(readFileSync(`${this.#directory}/revision`, 'latin1'), 10)
      // What is no number here is made up for by those of the leases.
      return revision >= 0 && revision <= LARGEST_REVISION ? revision : 0
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return 0
      throw error
    }
  }

  #requireDirectory(): void {
    try {
      if (statSync(this.#directory).isDirectory()) return
    } catch (error) {
      throw this.#asStoreError(error)
    }
    throw this.#unreadable('it is not a directory')
  }

  /** What the file system says becomes an error for people; a mistake of ours stays what it is. */
  #asStoreError(error: unknown): unknown {
    const { code, message, path } = error as NodeJS.ErrnoException
    if (error instanceof FlanneletteError || code === undefined) return error
    return this.#unreadable(code === 'ENOENT' ? `${path ?? 'it'} does not exist` : message, error)
  }

  #unreadable(why: string, cause?: unknown): FlanneletteError {
    const message = `store ${this.name} cannot be used: ${why}`
    const remedy = 'make the directory with a file "config" in it, or correct --store'
    return new FlanneletteError('store-unreadable', message, { remedy, retryable: true, cause })
  }
}
