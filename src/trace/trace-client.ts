// The reading end of a daemon's trace: connects to its local socket and hands out steps as they happen.
import { type ClientRequest, type IncomingMessage, request } from 'node:http'
import { createInterface } from 'node:readline'
import type { RecordedStep } from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import { stepFromLine } from './step-lines.ts'

export interface TraceClient {
  /** What was seen so far, in order. */
  readonly steps: readonly RecordedStep[]
  /** Hangs up; the daemon stops recording. */
  close(): void
}

/**
 * Starts recording at most `steps` steps on the daemon behind that socket. Resolves when the daemon records.
 * @throws FlanneletteError `daemon-unreachable` when no daemon answers there or it has nothing to trace
 */
export async function openTrace(socketPath: string, steps: number): Promise<TraceClient> {
  const { call, response } = await connect(socketPath, `/trace?steps=${steps}`)
  if (response.statusCode !== 200) {
    call.destroy()
    throw new FlanneletteError(
      'daemon-unreachable',
      `the daemon at ${socketPath} does not trace (${response.statusCode})`,
    )
  }
  const seen: RecordedStep[] = []
  const lines = createInterface({ input: response })
  lines.on('line', (line) => seen.push(stepFromLine(line)))
  return {
    steps: seen,
    close: () => {
      lines.close()
      call.destroy()
    },
  }
}

function connect(socketPath: string, path: string): Promise<{ call: ClientRequest; response: IncomingMessage }> {
  return new Promise((resolve, reject) => {
    const call = request({ socketPath, path }, (response) => {
      response.on('error', () => {}) // a daemon that goes away ends the trace
      resolve({ call, response })
    })
    call.on('error', (cause) => {
      const message = `no daemon answers at ${socketPath}`
      reject(new FlanneletteError('daemon-unreachable', message, { remedy: 'is it running?', cause }))
    })
    call.end()
  })
}
