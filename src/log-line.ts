// Forms of a log line, each made of the JSON line.
import { withoutControls } from './foreign-words.ts'

interface Line {
  /** `fatal` is the last line of all. */
  readonly level: 'debug' | 'info' | 'warn' | 'error' | 'fatal'
  readonly time: string
  /** Event, sentence, values. */
  readonly words: string
  readonly event: string
  /** Sentence and values. */
  readonly message: string
}

/** For people: `2026-01-01T00:00:00.000Z INFO  ready this node forwards mtu=1450`. */
export function textLine(json: string): string {
  const { time, level, words } = read(json)
  return `${time} ${level.toUpperCase().padEnd(5)} ${words}\n`
}

/** syslog(3). */
const PRIORITIES = { debug: 7, info: 6, warn: 4, error: 3, fatal: 3 } as const

/** For systemd, sd-daemon(3): `<6>ready this node forwards mtu=1450`. It notes the time itself. */
export function priorityLine(json: string): string {
  const { level, words } = read(json)
  return `<${PRIORITIES[level]}>${words}\n`
}

const LETTERS = { debug: 'I', info: 'I', warn: 'W', error: 'E', fatal: 'F' } as const

/**
 * As flannel's own log library writes it: `I0101 00:00:00.000000    4711 ready:1] this node forwards mtu=1450`, in
 * local time. Where a source file would stand, the event is.
 */
export function klogLine(json: string): string {
  const { level, time, event, message } = read(json)
  const at = new Date(time)
  const two = (value: number) => String(value).padStart(2, '0')
  const day = `${two(at.getMonth() + 1)}${two(at.getDate())}`
  const clock = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(':')
  const micros = `${String(at.getMilliseconds()).padStart(3, '0')}000`
  return `${LETTERS[level]}${day} ${clock}.${micros} ${String(process.pid).padStart(7)} ${event}:1] ${message}\n`
}

function read(json: string): Line {
  const { level, time, event, msg, ...fields } = JSON.parse(json) as Record<string, unknown>
  const values = Object.entries(fields).map(([name, value]) => `${name}=${asValue(value)}`)
  const message = withoutControls([msg, ...values].join(' '))
  const words = `${event} ${message}`
  return { level: level as Line['level'], time: String(time), words, event: String(event), message }
}

function asValue(value: unknown): string {
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  return /^[^\s"=]+$/.test(text) ? text : JSON.stringify(text)
}
