// Where the status of a node comes from, for commands: its local socket while the daemon lives, else what it wrote
// last.
import { readFileSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { FlanneletteError } from '../errors.ts'
import { API_SOCKET } from './api-server.ts'
import { type DaemonStatus, STATUS_FILE } from './status-file.ts'

/** A daemon that takes longer to answer is as good as dead, milliseconds. */
const ANSWER_LIMIT_MS = 5000

export interface StatusPlace {
  readonly stateDirectory: string
  /** In the state directory when left out. */
  readonly apiSocket?: string
}

export interface StatusFound {
  /** Whether it is the daemon that says so, now. */
  readonly isLive: boolean
  readonly status: DaemonStatus
}

/** @throws FlanneletteError `daemon-unreachable` when there is neither a daemon nor a word of one */
export async function findStatus(place: StatusPlace): Promise<StatusFound> {
  const socket = place.apiSocket ?? join(place.stateDirectory, API_SOCKET)
  try {
    return { isLive: true, status: await askDaemon<DaemonStatus>(socket, '/status') }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'EACCES' || code === 'EPERM') {
      throw new FlanneletteError('not-permitted', `the socket ${socket} is not open to you`, { remedy: 'ask as root' })
    }
    const status = lastWords(place.stateDirectory)
    if (status !== null) return { isLive: false, status }
    const message = `no daemon answers at ${socket}`
    const remedy = 'start it (flannelette run), or name its directory with --state-dir'
    throw new FlanneletteError('daemon-unreachable', message, { remedy, retryable: true, cause: error })
  }
}

/** One answer of the local socket. @throws Error when there is none */
export function askDaemon<T>(socketPath: string, path: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const call = request({ socketPath, path, timeout: ANSWER_LIMIT_MS }, (response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (more: string) => {
        text += more
      })
      response.on('error', reject)
      response.on('end', () => {
        if (response.statusCode !== 200) return reject(new Error(text.trim()))
        try {
          resolve(JSON.parse(text) as T)
        } catch (error) {
          reject(error)
        }
      })
    })
    call.on('timeout', () => call.destroy(new Error('no answer in time')))
    call.on('error', reject)
    call.end()
  })
}

function lastWords(directory: string): DaemonStatus | null {
  try {
    return JSON.parse(readFileSync(join(directory, STATUS_FILE), 'utf8')) as DaemonStatus
  } catch {
    return null
  }
}
