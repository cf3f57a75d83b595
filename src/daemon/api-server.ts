// The daemon's local socket: HTTP on a Unix socket in the state directory, for other commands on this host. Only root
// (whoever may enter the directory) can reach it.
//
//   GET /trace?steps=200    the engine's next steps as JSON lines, until that many were seen or the reader hangs up
import { chmodSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { join } from 'node:path'
import type { RecordedStep } from '../../dataplane/index.ts'
import { stepToLine } from '../trace/step-lines.ts'

export const API_SOCKET = 'api.sock'
const DEFAULT_STEPS = 200
const MAX_STEPS = 100_000

/** A dataplane whose steps can be looked at. */
export interface Traceable {
  /** Records at most `steps` steps from now on; 0 stops. One reader at a time: a new one replaces the old. */
  trace(steps: number, onSteps: ((steps: readonly RecordedStep[]) => void) | null): void
}

export class ApiServer {
  readonly #server: Server
  readonly #path: string
  readonly #traceable: Traceable | null

  /** `traceable` is null for a dataplane whose packets nobody here sees (the kernel's). */
  constructor(stateDirectory: string, traceable: Traceable | null) {
    this.#path = join(stateDirectory, API_SOCKET)
    this.#traceable = traceable
    this.#server = createServer((request, response) => this.#answer(request, response))
  }

  /** Listens; the socket of a daemon that died is replaced. @throws Error when the socket cannot be made */
  async start(): Promise<void> {
    rmSync(this.#path, { force: true })
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject)
      this.#server.listen(this.#path, resolve)
    })
    chmodSync(this.#path, 0o600)
  }

  stop(): void {
    this.#server.close()
    this.#server.closeAllConnections()
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const url = new URL(request.url ?? '/', 'http://localhost')
    const steps = Number(url.searchParams.get('steps') ?? DEFAULT_STEPS)
    if (url.pathname !== '/trace') {
      refuse(response, 404, 'there is only /trace')
    } else if (this.#traceable === null) {
      refuse(response, 409, 'the kernel dataplane has no steps to trace')
    } else if (!Number.isInteger(steps) || steps < 1 || steps > MAX_STEPS) {
      refuse(response, 400, `steps is a whole number from 1 to ${MAX_STEPS}`)
    } else {
      this.#stream(this.#traceable, steps, response)
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
      for (const step of recorded) response.write(`${stepToLine(step)}\n`)
      if (left <= 0) response.end()
    })
  }
}

function refuse(response: ServerResponse, status: number, why: string): void {
  response.writeHead(status, { 'content-type': 'text/plain' }).end(`${why}\n`)
}
