// What ends a command before it is through: Ctrl-C and its relatives, and output that nobody takes any more. Commands
// that build things listen and clean up; the second Ctrl-C ends the process at once.
import { FlanneletteError } from '../errors.ts'

const listening = new Set<AbortController>()

/** Fires at the first SIGINT, SIGTERM or SIGHUP (later ones act as if nobody listened), and at `interrupt`. */
export function interruption(): AbortSignal {
  const controller = new AbortController()
  listening.add(controller)
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.once(name, () => controller.abort(new FlanneletteError('interrupted', `stopped by ${name}`)))
  }
  return controller.signal
}

/** Interrupts whoever listens; false when nobody does and the process may just end. */
export function interrupt(reason: unknown): boolean {
  for (const controller of listening) controller.abort(reason)
  return listening.size > 0
}

let outputIsVital = true

/** A node that forwards packets goes on doing so, whether or not its log can be written. */
export function surviveLostOutput(): void {
  outputIsVital = false
}

/** What a failed write to standard output or standard error does to the command. */
export type OutputLoss =
  | { readonly kind: 'ignored' }
  /** The reader has gone (`| head -1`): the command ends as by Ctrl-C, without a word. */
  | { readonly kind: 'closed' }
  | { readonly kind: 'failed'; readonly line: string }

/** What becomes of the command when a stream of its own cannot be written. */
export function outputLoss(stream: 'output' | 'error', error: NodeJS.ErrnoException): OutputLoss {
  if (!outputIsVital) return { kind: 'ignored' }
  if (error.code === 'EPIPE') return { kind: 'closed' }
  const why = error.code === 'ENOSPC' ? 'no space is left; free some, or write elsewhere' : error.message
  return { kind: 'failed', line: `standard ${stream} cannot be written: ${why}` }
}
