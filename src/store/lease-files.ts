// The lease files of the file store. One bad file never costs the others: it is warned about once, and the last good
// content of that file stays valid until it expires or the file is gone.
import { readdirSync, readFileSync, statSync } from 'node:fs'
import type { Prefix } from '../../dataplane/index.ts'
import type { Clock } from '../clock.ts'
import { parseJson } from '../config/json-document.ts'
import { JsonFields } from '../config/json-fields.ts'
import { halvesOf, type Lease } from '../lease/lease.ts'
import type { Log } from '../log.ts'
import { formatLeaseValue, parseLeaseValue, parseSubnetKey, type SubnetKey } from './flannel-json.ts'
import type { UnreadableEntry } from './lease-store.ts'

/** The same instant as an expiry, on the clock that no person and no time daemon sets. */
export interface BootExpiry {
  /** `/proc/sys/kernel/random/boot_id`: the clock means nothing after a reboot. */
  readonly bootId: string
  readonly atBootMs: number
}

/** The next one has a number of its own still: behind 2⁵³ there are none for all. */
export const LARGEST_REVISION = 2 ** 50
/** Three thousand years: what lies behind it is no date (ECMA-262, Time Values), and would be none in a status. */
const LATEST_BOOT_MS = 1e14

/** Flannel's value, byte for byte, then our own line. */
export function formatLeaseFile(lease: Lease, boot: BootExpiry | null = null): string {
  const meta = {
    Expires: lease.expiresAtMs === null ? null : new Date(lease.expiresAtMs).toISOString(),
    Revision: lease.revision,
    ...(boot === null ? {} : { Boot: boot.bootId, ExpiresAtBootMs: Math.round(boot.atBootMs) }),
  }
  return `${formatLeaseValue(lease.attributes)}\n${JSON.stringify(meta)}\n`
}

/** The lease, and its expiry on the boot clock if the file has one. @throws JsonProblem */
export function parseLeaseFile(key: SubnetKey, text: string): { lease: Lease; boot: BootExpiry | null } {
  const [value = '', meta = ''] = text.split('\n')
  const attributes = parseLeaseValue(value)
  if (meta.trim() === '') return { lease: { ...key, attributes, expiresAtMs: null, revision: 0 }, boot: null }
  const fields = new JsonFields(meta, parseJson(meta), 'the second line')
  const expires = fields.string('Expires', '')
  const expiresAtMs = expires === '' ? null : Date.parse(expires)
  if (Number.isNaN(expiresAtMs)) throw fields.refusal('Expires', 'must be a time such as 2026-01-31T12:00:00Z')
  const revision = fields.integer('Revision', 0, { unsigned: true })
  if (revision > LARGEST_REVISION) throw fields.refusal('Revision', 'is larger than any store comes to')
  const lease = { ...key, attributes, expiresAtMs, revision }
  const bootId = fields.string('Boot', '')
  const atBootMs = fields.integer('ExpiresAtBootMs', 0)
  if (Math.abs(atBootMs) > LATEST_BOOT_MS) throw fields.refusal('ExpiresAtBootMs', 'is no time that a machine runs to')
  return { lease, boot: bootId === '' ? null : { bootId, atBootMs } }
}

interface KnownFile {
  /** Changes whenever the file is written or replaced. */
  readonly stamp: string
  readonly lease: Lease | null
  readonly boot: BootExpiry | null
  /** Why what it holds now is no lease, `null` when it is one. */
  readonly problem: string | null
}

export class LeaseFiles {
  readonly #directory: string
  readonly #log: Log
  readonly #clock: Clock
  readonly #bootId = readBootId()
  #known = new Map<string, KnownFile>()

  constructor(directory: string, log: Log, clock: Clock) {
    this.#directory = directory
    this.#log = log
    this.#clock = clock
  }

  /** The text of a lease's file. */
  format(lease: Lease): string {
    if (lease.expiresAtMs === null) return formatLeaseFile(lease)
    const lifetimeMs = lease.expiresAtMs - this.#clock.wallMs()
    return formatLeaseFile(lease, { bootId: this.#bootId, atBootMs: this.#clock.bootMs() + lifetimeMs })
  }

  /**
   * All leases, expired ones included; none when the directory is missing. `unreadable` are those whose file holds no
   * lease now, `blocked` the subnets of those that never did: somebody's, but whose? Throws what the file system says.
   */
  read(): { leases: Lease[]; blocked: Prefix[]; unreadable: UnreadableEntry[] } {
    const now = new Map<string, KnownFile>()
    for (const name of listNames(this.#directory)) {
      const file = this.#readOne(name)
      if (file !== null) now.set(name, file)
    }
    this.#known = now
    const unknown = [...now].filter(([, file]) => file.lease === null)
    return {
      leases: [...now.values()].flatMap((file) => (file.lease === null ? [] : this.#dated(file.lease, file.boot))),
      blocked: unknown.flatMap(([name]) => {
        const key = parseSubnetKey(name)
        return key === null ? [] : halvesOf(key)
      }),
      unreadable: [...now].flatMap(([name, { problem: why }]) =>
        why === null ? [] : [{ key: parseSubnetKey(name), name: `${this.#directory}/${name}`, why }],
      ),
    }
  }

  #readOne(name: string): KnownFile | null {
    const path = `${this.#directory}/${name}`
    const before = this.#known.get(name)
    try {
      const stat = statSync(path)
      // Before it is opened: a pipe would be waited for without end.
      if (!stat.isFile()) throw new Error('it is not a regular file')
      const stamp = `${stat.mtimeMs} ${stat.ino} ${stat.size}`
      if (before?.stamp === stamp) return before
      return { stamp, ...this.#parse(name, readFileSync(path, 'utf8'), before) }
    } catch (error) {
      // Gone between listing and reading: released by its owner.
      const { code, message } = error as NodeJS.ErrnoException
      if (code === 'ENOENT') return null
      // A directory (lost+found), a link that loops, a file of another user: one entry's trouble is its own.
      const lastGood = lastGoodOf(before, message)
      const stamp = `unreadable: ${message}`
      if (before?.stamp !== stamp) this.#warn(name, message, lastGood.lease !== null)
      return { stamp, ...lastGood }
    }
  }

  /** With this boot's clock in the file, a step of the wall clock moves the expiry along and ends no lease. */
  #dated(lease: Lease, boot: BootExpiry | null): Lease {
    if (boot === null || boot.bootId !== this.#bootId) return lease
    return { ...lease, expiresAtMs: this.#clock.wallMs() + boot.atBootMs - this.#clock.bootMs() }
  }

  #parse(name: string, text: string, before: KnownFile | undefined): Omit<KnownFile, 'stamp'> {
    const key = parseSubnetKey(name)
    try {
      if (key === null) throw new Error('its name is no lease key such as 10.244.1.0-24')
      return { ...parseLeaseFile(key, text), problem: null }
    } catch (error) {
      const { message } = error as Error
      const lastGood = lastGoodOf(before, message)
      this.#warn(name, message, lastGood.lease !== null)
      return lastGood
    }
  }

  #warn(name: string, why: string, keeping: boolean): void {
    const consequence = keeping ? 'its last good content stays valid' : 'it is ignored'
    const path = `${this.#directory}/${name}`
    this.#log.warn('lease-file-unreadable', `lease file ${path} cannot be read, ${consequence}: ${why}`)
  }
}

function lastGoodOf(before: KnownFile | undefined, problem: string): Omit<KnownFile, 'stamp'> {
  return { lease: before?.lease ?? null, boot: before?.boot ?? null, problem }
}

function readBootId(): string {
  return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()
}

function listNames(directory: string): string[] {
  try {
    return readdirSync(directory).filter((name) => !name.startsWith('.'))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}
