// Which peers the commands of an extension know of, in the state directory: who leaves while no daemon runs is taken
// back at the next start. A journal, since a set of ten thousand is not written anew for each of them: a line is added
// before a peer's command runs, and one when the peer has been taken back. A start writes the whole anew. A line that
// cannot be read costs no other; the file itself is replaced whole.
import { appendFileSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { writeFileAtomically } from '../atomic-file.ts'
import { type Lease, nameOf } from '../lease/lease.ts'
import type { Log } from '../log.ts'
import { fromWritten, toWritten, type WrittenLease } from './state-directory.ts'

export const TOLD_PEERS_FILE = 'extension-peers.jsonl'

/** Lines beyond those that are needed before the file is written anew. */
const SPARE_LINES = 1000
const FIRST_LINE = '{"Version":1}'

/** One line: a peer that a command is told of, or the name of one that was taken back. */
type Line = { readonly Told: WrittenLease } | { readonly Gone: string }

export class ToldPeers {
  readonly #path: string
  readonly #log: Log
  /** Texts of lines, by name. */
  readonly #told = new Map<string, string>()
  #lines = 0

  /** `directory` is the state directory; it exists once the daemon has claimed it. */
  constructor(directory: string, log: Log) {
    this.#path = join(directory, TOLD_PEERS_FILE)
    this.#log = log
  }

  /** Peers that were told by a former run and not taken back, by name; what cannot be read is warned about. */
  read(): ReadonlyMap<string, Lease> {
    const peers = new Map<string, Lease>()
    let unreadable = 0
    for (const text of this.#readLines()) {
      try {
        const line = JSON.parse(text) as Line
        if ('Told' in line) {
          const lease = fromWritten(line.Told)
          peers.set(nameOf(lease), lease)
        } else if (typeof line.Gone === 'string') {
          peers.delete(line.Gone)
        } else if (text !== FIRST_LINE) {
          unreadable += 1
        }
      } catch {
        unreadable += 1
      }
    }
    if (unreadable > 0) {
      this.#log.warn('state-unreadable', `of ${this.#path} lines cannot be read and are ignored: ${unreadable}`)
    }
    this.#told.clear()
    for (const [name, lease] of peers) this.#told.set(name, lineOf(lease))
    if (this.#lines > 0) this.#writeAnew()
    return peers
  }

  /** Before a command hears of it: who is killed in the middle knows of it afterwards. */
  add(peer: Lease): void {
    const [name, line] = [nameOf(peer), lineOf(peer)]
    if (this.#told.get(name) === line) return
    this.#told.set(name, line)
    this.#append(line)
  }

  /** It was taken back, or nobody will try that again. */
  remove(name: string): void {
    if (this.#told.delete(name)) this.#append(JSON.stringify({ Gone: name } satisfies Line))
  }

  #readLines(): readonly string[] {
    try {
      const lines = readFileSync(this.#path, 'utf8').split('\n').filter(Boolean)
      this.#lines = lines.length
      return lines
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') {
        this.#log.warn('state-unreadable', `${this.#path} cannot be read and is ignored: ${(error as Error).message}`)
      }
      return []
    }
  }

  /** Begins with a line feed: half a line before it, of a disk that was full, spoils nothing. */
  #append(line: string): void {
    this.#lines += 1
    if (this.#lines === 1 || this.#lines > this.#told.size + SPARE_LINES) this.#writeAnew()
    else this.#write(() => appendFileSync(this.#path, `\n${line}\n`, { mode: 0o644 }))
  }

  #writeAnew(): void {
    const lines = [FIRST_LINE, ...this.#told.values()]
    this.#lines = lines.length
    this.#write(() => writeFileAtomically(this.#path, `${lines.join('\n')}\n`, { mode: 0o644, durable: true }))
  }

  /** A full disk must not keep peers from being served: the next start then has less to remember. */
  #write(work: () => void): void {
    try {
      work()
    } catch (error) {
      this.#log.warn('state-unwritable', `${this.#path} cannot be written: ${(error as Error).message}`)
    }
  }
}

/** What commands are told of a peer, and nothing that a renewal changes. */
function lineOf(peer: Lease): string {
  return JSON.stringify({ Told: toWritten({ ...peer, expiresAtMs: null, revision: 0 }) } satisfies Line)
}
