// The last word of a command that failed: one line for people. `run` says it in the form of its log where a program reads
// that one, so that nobody has to read two forms from one stream.
import { flagOf, variableOf } from '../config/flag-table.ts'
import type { Environment } from '../config/flag-values.ts'
import type { ErrorCode } from '../errors.ts'
import { withoutControls } from '../foreign-words.ts'
import { type LogFormat, type LogReader, logFormOf } from '../log.ts'
import { klogLine } from '../log-line.ts'

export interface Failure {
  readonly code: ErrorCode | 'unexpected'
  /** What went wrong and what to do, in one sentence. */
  readonly sentence: string
  /** The second half of it; may be empty. */
  readonly remedy: string
}

export type FailureForm = 'plain' | 'json' | 'klog'

/**
 * The form that a command line asks for, as far as it can be read: it may be what is wrong. `reader`: what reads standard
 * error.
 */
export function failureFormOf(argv: readonly string[], environment: Environment, reader: LogReader): FailureForm {
  if (argv[0] !== 'run') return 'plain'
  const wanted = givenFormat(argv) ?? environment[variableOf('FLANNELLETTE', FLAG)] ?? ''
  const isKnown = flagOf(FLAG)?.choices.includes(wanted) === true
  const form = logFormOf(isKnown ? (wanted as LogFormat) : 'auto', reader)
  return form === 'json' || form === 'klog' ? form : 'plain'
}

const FLAG = 'log-format'

/** The last one counts. */
function givenFormat(argv: readonly string[]): string | undefined {
  let given: string | undefined
  for (const [index, word] of argv.entries()) {
    const [, isFlag, value] = /^--?(log-format)(?:=(.*))?$/.exec(word) ?? []
    if (isFlag !== undefined) given = value ?? argv[index + 1]
  }
  return given
}

/** One line with its line feed. `wallMs`: milliseconds since 1970. */
export function failureLine({ code, sentence, remedy }: Failure, form: FailureForm, wallMs: number): string {
  // Commander puts its suggestion on a line of its own; others' words may hold anything.
  const text = withoutControls(sentence.trim().replace(/\s*\n\s*/g, ' '))
  if (form === 'plain') return `flannelette: ${text}\n`
  const time = new Date(wallMs).toISOString()
  if (form === 'klog') return klogLine(JSON.stringify({ level: 'fatal', time, event: 'failed', msg: text, code }))
  return `${JSON.stringify({ level: 'fatal', time, event: 'failed', code, remedy, msg: text })}\n`
}
