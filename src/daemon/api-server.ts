// The daemon's local socket: HTTP on a Unix socket, for other commands on this host. Only root (whoever may reach the
// socket, of mode 0600) gets an answer. docs/operations.md describes it.
//
//   GET /status             everything there is to say of the node, as in status.json
//   GET /counters           counters by name
//   GET /health             checks and whether they passed
//   GET /trace?steps=200    the engine's next steps as JSON lines, until that many were seen or the reader hangs up
import { rmSync } from 'node:fs'
import type { Server, ServerResponse } from 'node:http'
import type { RecordedStep } from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import { stepToLine } from '../trace/step-lines.ts'
import { createHttpServer, HTTP_LIMITS, PLAIN_TEXT } from './http-server.ts'
import type { DaemonStatus } from './status-file.ts'

/** Name of the socket in the state directory, unless `--api-socket` says otherwise. */
export const API_SOCKET = 'api.sock'
const DEFAULT_STEPS = 200
const MAX_STEPS = 100_000
/** A reader that is so many bytes behind loses steps: the daemon's memory is not its to fill. */
const MAX_BACKLOG_BYTES = 4 * 1024 * 1024
/** Of a socket's address (unix(7)), less the zero behind it. */
const MAX_PATH_BYTES = 107

/** A dataplane whose steps can be looked at. */
export interface Traceable {
  /** False until there is something to see. */
  readonly isStarted?: boolean
  /** Records at most `steps` steps from now on; 0 stops. One reader at a time: a new one replaces the old. */
  trace(steps: number, onSteps: ((steps: readonly RecordedStep[]) => void) | null): void
}

export interface ApiOptions {
  readonly path: string
  /** `null` for a dataplane whose packets nobody here sees (the kernel's). Asked each time: it may be chosen late. */
  readonly traceable: () => Traceable | null
  readonly status: () => DaemonStatus
}

export class ApiServer {
  readonly #server: Server
  readonly #options: ApiOptions
  #lostSteps = 0

  constructor(options: ApiOptions) {
    this.#options = options
    // Whoever waits for steps may wait long.
    this.#server = createHttpServer((url, response) => this.#answer(url, response), { ...HTTP_LIMITS, silenceMs: 0 })
  }

  /** Recorded steps that a reader was too slow for. */
  get lostSteps(): number {
    return this.#lostSteps
  }

  /** Listens; the socket of a daemon that died is replaced. @throws FlanneletteError `usage` when it cannot be made */
  async start(): Promise<void> {
    const { path } = this.#options
    try {
      if (Buffer.byteLength(path) > MAX_PATH_BYTES) throw new Error(`longer than ${MAX_PATH_BYTES} bytes`)
      rmSync(path, { force: true })
      await new Promise<void>((resolve, reject) => {
        this.#server.once('error', reject)
        this.#listen(path, resolve)
      })
    } catch (error) {
      const message = `the socket ${path} cannot be made: ${(error as Error).message}`
      throw new FlanneletteError('usage', message, { remedy: 'choose another with --api-socket', cause: error })
    }
  }

  /** The socket is made by the call itself, and is nobody else's from then on. */
  #listen(path: string, onListening: () => void): void {
    const before = process.umask(0o177)
    try {
      this.#server.listen(path, onListening)
    } finally {
      process.umask(before)
    }
  }

  stop(): void {
    this.#server.close()
    this.#server.closeAllConnections()
  }

  #answer(url: URL, response: ServerResponse): void {
    const { status } = this.#options
    if (url.pathname === '/status') give(response, status())
    else if (url.pathname === '/counters') give(response, status().counters)
    else if (url.pathname === '/health') give(response, status().health)
    else if (url.pathname === '/trace') this.#trace(url.searchParams.get('steps'), response)
    else refuse(response, 404, 'there are /status, /counters, /health and /trace?steps=N')
  }

  #trace(wanted: string | null, response: ServerResponse): void {
    const traceable = this.#options.traceable()
    const steps = Number(wanted ?? DEFAULT_STEPS)
    if (traceable === null) {
      refuse(response, 409, 'the kernel dataplane has no steps to trace')
    } else if (traceable.isStarted === false) {
      refuse(response, 409, 'the node has not started to forward')
    } else if (!Number.isInteger(steps) || steps < 1 || steps > MAX_STEPS) {
      refuse(response, 400, `steps is a whole number from 1 to ${MAX_STEPS}`)
    } else {
      this.#stream(traceable, steps, response)
    }
  }

  #stream(traceable: Traceable, steps: number, response: ServerResponse): void {
    let left = steps
    response.writeHead(200, { 'content-type': 'application/jsonl' })
    response.flushHeaders()
    response.on('close', () => {
      if (left > 0) traceable.trace(0, null)
    })
    traceable.trace(steps, (recorded) => {
      left -= recorded.length
      if (response.writableLength > MAX_BACKLOG_BYTES) this.#lostSteps += recorded.length
      else for (const step of recorded) response.write(`${stepToLine(step)}\n`)
      if (left <= 0) response.end()
    })
  }
}

function give(response: ServerResponse, what: unknown): void {
  response.writeHead(200, { 'content-type': 'application/json' }).end(`${JSON.stringify(what)}\n`)
}

function refuse(response: ServerResponse, status: number, why: string): void {
  response.writeHead(status, PLAIN_TEXT).end(`${why}\n`)
}
