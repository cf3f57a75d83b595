// Ctrl-C for commands that build things: the first one lets them clean up, the second one ends the process at once.
import { FlanneletteError } from '../errors.ts'

/** Fires at the first SIGINT, SIGTERM or SIGHUP; later ones act as if nobody listened. */
export function interruption(): AbortSignal {
  const controller = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.once(name, () => controller.abort(new FlanneletteError('interrupted', `stopped by ${name}`)))
  }
  return controller.signal
}
