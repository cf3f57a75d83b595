// How a network config is refused: what a decoder says of the JSON, and what the rules say of its values.
import { FlanneletteError } from '../errors.ts'
import { JsonProblem, type TextPosition } from './json-document.ts'

/** A `config-invalid` error about the network config, with what it is about. */
export class ConfigError extends FlanneletteError {
  /** As people write it: `SubnetLen`, `Backend.VNI`; empty when the JSON itself is at fault. */
  readonly field: string
  /** The sentence without what it is about the config and where. */
  readonly sentence: string
  /** `null` when no position in the text is to blame; the field then tells. */
  readonly position: TextPosition | null

  constructor(field: string, sentence: string, remedy: string, position: TextPosition | null) {
    const where = position === null ? '' : `line ${position.line}, column ${position.column}: `
    super('config-invalid', `network config: ${where}${sentence}`, { remedy })
    this.field = field
    this.sentence = sentence
    this.position = position
  }
}

const REMEDY = 'correct the network config'

/** Runs a decoder; what it says of the JSON becomes an error for people. `within`: the object that it reads. */
export function asConfigError<T>(decode: () => T, within = ''): T {
  try {
    return decode()
  } catch (error) {
    if (!(error instanceof JsonProblem)) throw error
    throw new ConfigError(
      error.field === '' ? within : `${within && `${within}.`}${error.field}`,
      error.sentence,
      REMEDY,
      error.position,
    )
  }
}

/** The error about a field whose value breaks a rule; `why` goes on after its name. */
export function invalid(field: string, why: string, remedy = REMEDY): ConfigError {
  return new ConfigError(field, `${field} ${why}`, remedy, null)
}
