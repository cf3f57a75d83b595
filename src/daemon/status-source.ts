// Where the status of a node comes from, for commands: its local socket while the daemon lives, else what it wrote
// last.
import { readFileSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { FlanneletteError } from '../errors.ts'
import { foreignWords } from '../foreign-words.ts'
import { apiSocketOf } from './daemon-words.ts'
import { type DaemonStatus, STATUS_FILE } from './status-file.ts'

/** A daemon that takes longer to answer is as good as dead, milliseconds. */
const ANSWER_LIMIT_MS = 5000

export interface StatusPlace {
  readonly stateDirectory: string
  /** Where the daemon was told to make it, else in the state directory, when left out. */
  readonly apiSocket?: string
}

export interface StatusFound {
  /** Whether it is the daemon that says so, now. */
  readonly isLive: boolean
  readonly status: DaemonStatus
}

/** @throws FlanneletteError `daemon-unreachable` when there is neither a daemon nor a word of one */
export async function findStatus(place: StatusPlace): Promise<StatusFound> {
  const said = lastWords(place.stateDirectory)
  const socket = place.apiSocket ?? apiSocketOf(said?.pid ?? null, place.stateDirectory)
  try {
    return { isLive: true, status: await askStatus(socket) }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'EACCES' || code === 'EPERM') {
      throw new FlanneletteError('not-permitted', `the socket ${socket} is not open to you`, { remedy: 'ask as root' })
    }
    if (error instanceof StatusProblem) {
      const remedy = 'ask with the flannelette that it runs'
      throw new FlanneletteError('daemon-unreachable', `what answers at ${socket} ${error.message}`, { remedy })
    }
    if (said !== null) return { isLive: false, status: said }
    const message = `no daemon answers at ${socket}`
    const remedy = 'start it (flannelette run), or name its directory with --state-dir'
    throw new FlanneletteError('daemon-unreachable', message, { remedy, retryable: true, cause: error })
  }
}

/**
 * What a daemon says on its local socket, within `limitMs` of silence.
 * @throws Error when there is no answer, StatusProblem when it is no status
 */
export async function askStatus(socketPath: string, limitMs = ANSWER_LIMIT_MS): Promise<DaemonStatus> {
  return statusIn(await askSocket(socketPath, '/status', limitMs))
}

function askSocket(socketPath: string, path: string, limitMs: number): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const call = request({ socketPath, path, timeout: limitMs }, (response) => {
      let text = ''
      response.setEncoding('utf8')
      response.on('data', (more: string) => {
        text += more
      })
      response.on('error', reject)
      response.on('end', () => {
        if (response.statusCode !== 200) return reject(new Error(text.trim()))
        try {
          resolve(JSON.parse(text))
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
    return readStatusFile(directory)
  } catch {
    return null
  }
}

/** What the daemon of a state directory wrote last. @throws Error when there is nothing, or nothing that makes sense */
export function readStatusFile(directory: string): DaemonStatus {
  return statusIn(JSON.parse(readFileSync(join(directory, STATUS_FILE), 'utf8')))
}

/** Words or bytes that are no status of ours: another version, or somebody else's. */
export class StatusProblem extends Error {}

/** Parts that commands look into without asking; younger ones may be missing. */
const PARTS: Readonly<Record<string, (part: unknown) => boolean>> = {
  pid: (part) => typeof part === 'number',
  state: (part) => typeof part === 'string',
  store: isObject,
  features: isObject,
  counters: isObject,
  peers: isListOfObjects,
  leftOut: isListOfObjects,
  offenders: isListOfObjects,
  conflicts: Array.isArray,
}

/** A status by its version and its parts. @throws StatusProblem */
export function statusIn(value: unknown): DaemonStatus {
  if (!isObject(value)) throw new StatusProblem('is no status')
  if (value.version !== 1) throw new StatusProblem(`is a status of version ${foreignWords(`${value.version}`)}, not 1`)
  const wrong = Object.entries(PARTS).find(([name, isRight]) => !isRight(value[name]))
  if (wrong !== undefined) throw new StatusProblem(`is a status without ${wrong[0]}`)
  return value as unknown as DaemonStatus
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isListOfObjects(value: unknown): boolean {
  return Array.isArray(value) && value.every(isObject)
}
