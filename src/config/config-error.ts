// How a network config is refused: what a decoder says of the JSON, and what the rules say of its values.
import { FlanneletteError } from '../errors.ts'
import { JsonProblem } from './json-document.ts'

/** Runs a decoder; what it says of the JSON becomes an error for people. */
export function asConfigError<T>(decode: () => T): T {
  try {
    return decode()
  } catch (error) {
    if (error instanceof JsonProblem) throw invalid(error.message)
    throw error
  }
}

/** A `config-invalid` error about the network config. */
export function invalid(why: string, remedy = 'correct the network config and start again'): FlanneletteError {
  return new FlanneletteError('config-invalid', `network config: ${why}`, { remedy })
}
