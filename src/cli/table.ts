// Text for people: columns, marks and colour, with the fall-backs that plain terminals need.
import { styleText } from 'node:util'
import { withoutControls } from '../foreign-words.ts'

/** What the output can show. */
export interface Terminal {
  readonly colour: boolean
  /** Whether characters beyond ASCII come out right. */
  readonly unicode: boolean
}

/** Judges a stream by the environment: NO_COLOR, FORCE_COLOR, TERM and the locale. */
export function terminalOf(stream: { readonly isTTY?: boolean }, env: NodeJS.ProcessEnv = process.env): Terminal {
  const forced = env.FORCE_COLOR !== undefined && env.FORCE_COLOR !== '0'
  const plain = (env.NO_COLOR ?? '') !== '' || env.TERM === 'dumb'
  const locale = env.LC_ALL || env.LC_CTYPE || env.LANG || ''
  return { colour: !plain && (forced || stream.isTTY === true), unicode: /utf-?8/i.test(locale) }
}

/** A word with a mark, never colour alone: `✓`/`✗`, or `OK`/`FAIL` where those cannot be shown. */
export function mark(good: boolean, terminal: Terminal): string {
  const text = terminal.unicode ? (good ? '✓' : '✗') : good ? 'OK' : 'FAIL'
  return paint(good ? 'blue' : 'yellow', text, terminal)
}

/**
 * The same for lists, always four columns wide: also `!` for what needs a look, and other signs that are no verdict.
 */
export function markColumn(sign: 'good' | 'bad' | '!' | 'i' | '?' | '-', terminal: Terminal): string {
  const verdict = sign === 'good' || sign === 'bad'
  const text = verdict ? mark(sign === 'good', terminal) : paint(sign === '!' ? 'yellow' : 'dim', sign, terminal)
  return text + ' '.repeat(4 - width(text))
}

/** The text in colour, where the terminal has any. */
export function paint(colour: 'blue' | 'yellow' | 'bold' | 'dim', text: string, terminal: Terminal): string {
  return terminal.colour ? styleText(colour, text, { validateStream: false }) : text
}

/** Rows below a heading, columns two blanks apart, no blanks at line ends. Cells may hold colour. */
export function table(heading: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [heading, ...rows]
  const widths = heading.map((_, column) => Math.max(...lines.map((line) => width(line[column] ?? ''))))
  return lines
    .map((line) => line.map((cell, column) => cell + ' '.repeat((widths[column] ?? 0) - width(cell))).join('  '))
    .map((line) => `${line.trimEnd()}\n`)
    .join('')
}

function width(cell: string): number {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences are what is looked for
  return cell.replace(/\u001b\[[0-9;]*m/g, '').length
}

/** `9.41 Gbit/s`, `100 Mbit/s`: three digits. */
export function formatBitrate(bitsPerSecond: number): string {
  const units = ['bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s']
  let value = bitsPerSecond
  let unit = 0
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000
    unit++
  }
  const decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2
  return `${value.toFixed(decimals)} ${units[unit]}`
}

/** What stands for characters beyond ASCII where those cannot be shown. */
const ASCII: Readonly<Record<string, string>> = { '→': '->', µ: 'u', '−': '-', '·': '-', '…': '...', '×': 'x' }

/** Our own colours, and the ends of lines. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences are what is looked for
const OURS = /(\u001b\[[0-9;]*m|\n)/

/** The text as this terminal can show it, with colours and nothing else that it would obey. */
export function shown(words: string, terminal: Terminal): string {
  const text = words
    .split(OURS)
    .map((part, index) => (index % 2 === 1 ? part : withoutControls(part)))
    .join('')
  // biome-ignore lint/suspicious/noControlCharactersInRegex: all of ASCII stays, escape sequences too
  return terminal.unicode ? text : text.replace(/[^\x00-\x7f]/g, (character) => ASCII[character] ?? '?')
}
