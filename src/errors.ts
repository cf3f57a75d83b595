// Errors that people meet. Packets fail by value; configuration, hosts and stores fail by these.

/** Exit codes of every command; docs/configuration.md lists them. */
export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  timeout: 3,
  unreachable: 4,
  notPermitted: 5,
  interrupted: 130,
} as const

export type ErrorCode =
  | 'usage'
  | 'config-missing'
  | 'config-invalid'
  | 'store-unreadable'
  | 'store-refused'
  | 'network-overlap'
  | 'lease-conflict'
  | 'out-of-subnets'
  | 'port-busy'
  | 'device-foreign'
  | 'device-busy'
  | 'tun-unavailable'
  | 'driver-unavailable'
  | 'not-permitted'
  | 'host-command'
  | 'interface-unsuitable'
  | 'daemon-unreachable'
  | 'lab-state'
  | 'interrupted'

/**
 * A failure with a stable `code`, a sentence that says what went wrong, and a `remedy` that says what to do next.
 * `retryable` is set where the same call may succeed later without anybody changing anything.
 */
export class FlanneletteError extends Error {
  readonly code: ErrorCode
  readonly remedy: string
  readonly retryable: boolean
  readonly exitCode: number

  constructor(
    code: ErrorCode,
    message: string,
    options: { remedy?: string; retryable?: boolean; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.name = 'FlanneletteError'
    this.code = code
    this.remedy = options.remedy ?? ''
    this.retryable = options.retryable ?? false
    this.exitCode = exitCodeOf(code)
  }

  /** The one line that a person sees on stderr. */
  get oneLine(): string {
    return this.remedy === '' ? this.message : `${this.message}; ${this.remedy}`
  }
}

function exitCodeOf(code: ErrorCode): number {
  if (code === 'usage' || code === 'config-invalid') return EXIT.usage
  if (code === 'interrupted') return EXIT.interrupted
  if (code === 'daemon-unreachable') return EXIT.unreachable
  if (code === 'not-permitted') return EXIT.notPermitted
  return EXIT.failed
}
