// What a node remembers between two lives of its daemon: its VTEP's MAC, its own lease with the network config it was
// granted under, and the last set of leases. With these a daemon forwards again while its store is away. Files are
// replaced whole; one that cannot be read is warned about and counts as absent.
import { readFileSync } from 'node:fs'
import { formatMac, parseMac } from '../../dataplane/index.ts'
import { sweepTemporaryFiles, writeFileAtomically, writeFileInBackground } from '../atomic-file.ts'
import { FlanneletteError } from '../errors.ts'
import { resultPer } from '../last-result.ts'
import type { Lease } from '../lease/lease.ts'
import type { Log } from '../log.ts'
import { isDirectory, makeDirectory } from '../make-directory.ts'
import { holdFileLock } from '../store/file-lock.ts'
import { formatSubnetKey, parseSubnetKey } from '../store/flannel-json.ts'
import { formatLeaseFile, parseLeaseFile } from '../store/lease-files.ts'

/** A daemon that was just told to stop may still be at it. */
const CLAIM_PATIENCE_MS = 2000

/** By the addresses of hosts that the tunnel goes between. */
type MacFamily = 'ipv4' | 'ipv6'
const MAC_FILES: Readonly<Record<MacFamily, string>> = { ipv4: 'mac', ipv6: 'mac-v6' }

/** The own lease and the raw network config that it belongs to. */
export interface KeptLease {
  readonly lease: Lease
  readonly config: string
}

/** A lease as files of this directory hold it. */
export interface WrittenLease {
  readonly Key: string
  readonly Content: string
}

export class StateDirectory {
  readonly path: string
  readonly #log: Log

  constructor(path: string, log: Log) {
    this.path = path
    this.#log = log
  }

  /** Whether there is such a directory: otherwise nothing is remembered. */
  get exists(): boolean {
    return isDirectory(this.path)
  }

  /** Makes the directory. @throws FlanneletteError `usage` when that is impossible */
  prepare(): void {
    try {
      makeDirectory(this.path)
    } catch (error) {
      const message = `state directory ${this.path} cannot be made: ${(error as Error).message}`
      throw new FlanneletteError('usage', message, { remedy: 'choose another with --state-dir', cause: error })
    }
  }

  /**
   * Makes the directory ours until the process ends: two daemons with one identity would take each other's lease.
   * @throws FlanneletteError `device-busy` when another daemon has it
   */
  async claim(): Promise<void> {
    this.prepare()
    if ((await holdFileLock(`${this.path}/lock`, CLAIM_PATIENCE_MS)) !== null) return sweepTemporaryFiles(this.path)
    const message = `another daemon runs with state directory ${this.path}`
    throw new FlanneletteError('device-busy', message, { remedy: 'stop it first, or choose another with --state-dir' })
  }

  /** That of the device over IPv4, or of the one over IPv6. */
  readMac(family: MacFamily = 'ipv4'): number | null {
    return this.#read(MAC_FILES[family], (text) => {
      const mac = parseMac(text.trim())
      if (mac === null) throw new Error('it holds no MAC')
      return mac
    })
  }

  writeMac(mac: number, family: MacFamily = 'ipv4'): void {
    this.#write(MAC_FILES[family], `${formatMac(mac)}\n`)
  }

  readLease(): KeptLease | null {
    return this.#read('lease.json', (text) => {
      const { Config, Lease } = JSON.parse(text) as { Config: unknown; Lease: WrittenLease }
      if (typeof Config !== 'string') throw new Error('it has no Config')
      return { config: Config, lease: fromWritten(Lease) }
    })
  }

  writeLease(kept: KeptLease): void {
    const content = { Version: 1, Config: kept.config, Lease: toWritten(kept.lease) }
    this.#write('lease.json', `${JSON.stringify(content)}\n`)
  }

  /** The last set of leases, own one included; empty when none was kept. */
  readLeases(): readonly Lease[] {
    const leases = this.#read('leases.json', (text) => {
      const { Leases } = JSON.parse(text) as { Leases: readonly WrittenLease[] }
      return Leases.map(fromWritten)
    })
    return leases ?? []
  }

  /** Resolves when they are on disk, or that was warned about. The last of several at once is not sure to win. */
  async writeLeases(leases: readonly Lease[]): Promise<void> {
    const path = `${this.path}/leases.json`
    try {
      const content = `{"Version":1,"Leases":[${leases.map(textOf).join()}]}\n`
      await writeFileInBackground(path, content, { mode: 0o644, durable: true })
    } catch (error) {
      this.#warnUnwritable(path, error)
    }
  }

  #read<T>(name: string, parse: (text: string) => T): T | null {
    const path = `${this.path}/${name}`
    try {
      return parse(readFileSync(path, 'utf8'))
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
      this.#log.warn('state-unreadable', `${path} cannot be read and is ignored: ${(error as Error).message}`)
      return null
    }
  }

  /** A full disk must not stop forwarding: the next start then has less to remember. */
  #write(name: string, content: string): void {
    const path = `${this.path}/${name}`
    try {
      writeFileAtomically(path, content, { mode: 0o644, durable: true })
    } catch (error) {
      this.#warnUnwritable(path, error)
    }
  }

  #warnUnwritable(path: string, error: unknown): void {
    this.#log.warn('state-unwritable', `${path} cannot be written: ${(error as Error).message}`)
  }
}

/** By the lease itself, which never changes: of ten thousand a change concerns one. */
const textOf = resultPer((lease: Lease) => JSON.stringify(toWritten(lease)))

/** A lease as it stands in `lease.json` and `leases.json`. */
export function toWritten(lease: Lease): WrittenLease {
  return { Key: formatSubnetKey(lease), Content: formatLeaseFile(lease) }
}

/** @throws Error for a key or content that is none */
export function fromWritten({ Key, Content }: WrittenLease): Lease {
  const key = parseSubnetKey(Key)
  if (key === null) throw new Error(`"${Key}" is no lease key`)
  return parseLeaseFile(key, Content).lease
}
