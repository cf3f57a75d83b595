// The log: one event a line on stderr, each with a fixed `event` name; the forms of lines are in log-line.ts. A warning
// or error that repeats is written once and then counted, so that a broken store cannot fill a disk; one whose opposite
// came in between is no repetition, but what goes to and fro all the time is counted as well.
import { fstatSync } from 'node:fs'
import { pino } from 'pino'
import type { Clock, Timer } from './clock.ts'
import { klogLine, priorityLine, textLine } from './log-line.ts'

export type LogFields = Readonly<Record<string, unknown>>
export type LogLevel = 'debug' | 'info' | 'warn' | 'error'
export type LogFormat = 'auto' | 'text' | 'json' | 'klog'

/** `event` is a fixed kebab-case name for machines, `message` a sentence for people, `fields` the values in it. */
export interface Log {
  debug(event: string, message: string, fields?: LogFields): void
  info(event: string, message: string, fields?: LogFields): void
  warn(event: string, message: string, fields?: LogFields): void
  error(event: string, message: string, fields?: LogFields): void
}

/** Where lines go. Each call carries one whole line with its line feed. */
export interface LogSink {
  write(line: string): void
}

/** How long repetitions of one line are only counted, in milliseconds. */
export const REPEAT_WINDOW_MS = 60_000

/** Lines whose repetitions are counted at once. Bounded, since messages hold addresses and other free text. */
const MAX_TRACKED = 256

type Opposites = readonly (readonly [string, string])[]

/** Of what a node has one. */
const OPPOSITES_OF_THE_NODE: Opposites = [
  ['underlay-lost', 'underlay-back'],
  ['device-lost', 'device-restored'],
  ['store-disconnected', 'store-connected'],
  ['config-changed', 'config-back'],
]

/** Events that undo each other: what is said of the one is news again once the other was said. */
export const OPPOSITES: Opposites = [
  ...OPPOSITES_OF_THE_NODE,
  ['peer-pending', 'peer-programmed'],
  ['peers-not-replaced', 'peers-replaced'],
]
const OPPOSITE_OF = new Map(OPPOSITES.flatMap(([one, other]) => [[one, other] as const, [other, one] as const]))

/** The others are of peers, of which many may be told of at once. */
const ONE_PER_NODE = new Set(OPPOSITES_OF_THE_NODE.flat())

/**
 * Lines of one pair of the node's that are written within {@link REPEAT_WINDOW_MS} before the last one, in all one each ten
 * seconds.
 */
export const MAX_TURNS = 5

/** A log that says nothing, for code that is used without a person watching. */
export const silentLog: Log = { debug() {}, info() {}, warn() {}, error() {} }

export interface LogOptions {
  readonly format: LogFormat
  readonly level: LogLevel
  readonly clock: Clock
  readonly sink: LogSink
  /** What reads the sink; decides what `auto` means. */
  readonly reader: LogReader
}

/** `terminal`: a person. `journal`: systemd, which knows the time and takes priorities in front of lines. */
export type LogReader = 'terminal' | 'journal' | 'other'

/** Who reads a stream of this process: systemd says in JOURNAL_STREAM which device and inode its own has. */
export function readerOf(stream: { readonly fd: number; readonly isTTY?: boolean }, journalStream?: string): LogReader {
  if (stream.isTTY === true) return 'terminal'
  if (journalStream === undefined) return 'other'
  const { dev, ino } = fstatSync(stream.fd)
  return journalStream === `${dev}:${ino}` ? 'journal' : 'other'
}

function formOf({ format, reader }: LogOptions): ((line: string) => string) | null {
  if (format === 'klog') return klogLine
  if (format === 'text' || (format === 'auto' && reader === 'terminal')) return textLine
  return format === 'auto' && reader === 'journal' ? priorityLine : null
}

/** A log on pino. `close` writes the counts that are still pending. */
export function createLog(options: LogOptions): Log & { close(): void } {
  const form = formOf(options)
  const logger = pino(
    {
      level: options.level,
      base: null,
      timestamp: () => `,"time":"${new Date(options.clock.wallMs()).toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
    },
    form === null ? options.sink : { write: (line: string) => options.sink.write(form(line)) },
  )
  const emit = (level: LogLevel, event: string, message: string, fields: LogFields = {}) =>
    logger[level]({ event, ...fields }, message)
  const limiter = new RepeatLimiter(options.clock, emit)
  return {
    debug: (event, message, fields) => emit('debug', event, message, fields),
    info: (event, message, fields) => limiter.pass('info', event, message, fields),
    warn: (event, message, fields) => limiter.offer('warn', event, message, fields),
    error: (event, message, fields) => limiter.offer('error', event, message, fields),
    close: () => limiter.close(),
  }
}

type Emit = (level: LogLevel, event: string, message: string, fields?: LogFields) => void

interface Repetition {
  readonly event: string
  count: number
  readonly timer: Timer
  flush(): void
}

/** What a pair of opposites did within a window. */
interface Turns {
  written: number
  unwritten: number
  /** Writes the latest of those that were not. */
  last: () => void
  readonly timer: Timer
}

/** Lets the first of equal lines pass and says at the end of the window how many followed. */
class RepeatLimiter {
  readonly #clock: Clock
  readonly #emit: Emit
  readonly #seen = new Map<string, Repetition>()
  /** By the event of a pair that comes first in the alphabet. */
  readonly #turns = new Map<string, Turns>()

  constructor(clock: Clock, emit: Emit) {
    this.#clock = clock
    this.#emit = emit
  }

  offer(level: 'warn' | 'error', event: string, message: string, fields?: LogFields): void {
    this.#endOpposite(event)
    const key = `${level} ${event} ${message}`
    const known = this.#seen.get(key)
    if (known !== undefined) {
      known.count++
      return
    }
    this.#turn(level, event, message, fields)
    if (this.#seen.size >= MAX_TRACKED) return
    const flush = () => {
      const entry = this.#seen.get(key)
      this.#seen.delete(key)
      if (entry === undefined || entry.count === 0) return
      const times = `${entry.count} more times within ${REPEAT_WINDOW_MS / 1000} s`
      this.#turn(level, event, `${message} (${times})`, { ...fields, repeated: entry.count })
    }
    this.#seen.set(key, { event, count: 0, timer: this.#clock.after(REPEAT_WINDOW_MS, flush), flush })
  }

  /** A line that may repeat. */
  pass(level: LogLevel, event: string, message: string, fields?: LogFields): void {
    this.#endOpposite(event)
    this.#turn(level, event, message, fields)
  }

  /** A pair of opposites that goes to and fro is told at the end of the window as it stands then. */
  #turn(level: LogLevel, event: string, message: string, fields?: LogFields): void {
    const opposite = OPPOSITE_OF.get(event)
    const pair = opposite === undefined || event < opposite ? event : opposite
    const turns = ONE_PER_NODE.has(event) ? (this.#turns.get(pair) ?? this.#beginTurns(pair)) : null
    if (turns === null || turns.written < MAX_TURNS) {
      if (turns !== null) turns.written++
      this.#emit(level, event, message, fields)
      return
    }
    turns.unwritten++
    turns.last = () => {
      const times = `the last of ${turns.unwritten} more changes within ${REPEAT_WINDOW_MS / 1000} s`
      this.#emit(level, event, `${message} (${times})`, { ...fields, unwritten: turns.unwritten })
    }
  }

  #beginTurns(pair: string): Turns {
    const timer = this.#clock.after(REPEAT_WINDOW_MS, () => this.#endTurns(pair))
    const turns = { written: 0, unwritten: 0, last: () => {}, timer }
    this.#turns.set(pair, turns)
    return turns
  }

  #endTurns(pair: string): void {
    const turns = this.#turns.get(pair)
    this.#turns.delete(pair)
    turns?.timer.cancel()
    turns?.last()
  }

  /** Writes the counts of what this event undoes, and forgets it: its next time is no repetition. */
  #endOpposite(event: string): void {
    const opposite = OPPOSITE_OF.get(event)
    if (opposite !== undefined) this.#end((entry) => entry.event === opposite)
  }

  close(): void {
    this.#end(() => true)
    for (const pair of [...this.#turns.keys()]) this.#endTurns(pair)
  }

  #end(isOver: (entry: Repetition) => boolean): void {
    for (const entry of [...this.#seen.values()]) {
      if (!isOver(entry)) continue
      entry.timer.cancel()
      entry.flush()
    }
  }
}
