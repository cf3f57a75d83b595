// One daemon on a host for each identity: the public address in a store. A second one (with a state directory of its
// own, and another VNI or port, so that neither device nor port collide) would take the lease of the first without a
// word. Another store is another network, and the same address in it another identity.
import { createHash } from 'node:crypto'
import { rmSync, writeFileSync } from 'node:fs'
import { formatAddress, type UnderlayAddress } from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import type { Log } from '../log.ts'
import { makeDirectory } from '../make-directory.ts'
import { holdFileLock } from '../store/file-lock.ts'
import { IDENTITY_DIRECTORY, pidIn, readIdentities } from './running-daemons.ts'

/** A daemon that was just told to stop may still be at it. */
const PATIENCE_MS = 2000

export interface Identity {
  readonly publicIp: UnderlayAddress
  /** The store as it was named, with an absolute path where it has one. */
  readonly store: string
}

/**
 * Makes the identity ours until the process ends, or until the function that this resolves with gives it up. Files of
 * daemons that were killed go on the way. Where the directory cannot be written, says so and goes on: the store still tells
 * of a lease that somebody else changes.
 * @throws FlanneletteError `device-busy` when another daemon of this host has it
 */
export async function claimIdentity(
  { publicIp, store }: Identity,
  log: Log,
  directory = IDENTITY_DIRECTORY,
  patienceMs = PATIENCE_MS,
): Promise<() => void> {
  const path = `${directory}/${formatAddress(publicIp)}-${createHash('sha256').update(store).digest('hex').slice(0, 16)}`
  let release: (() => void) | null
  try {
    makeDirectory(directory)
    release = await holdFileLock(path, patienceMs)
    if (release !== null) {
      writeFileSync(path, `${process.pid}\n`)
      await readIdentities(directory, true)
      return leaving(path, release)
    }
  } catch (error) {
    log.warn('identity-unguarded', `a second daemon on this host would not be noticed: ${(error as Error).message}`)
    return () => {}
  }
  const who = `another daemon on this host (${holder(path)}) has the address ${formatAddress(publicIp)} in ${store}`
  throw new FlanneletteError('device-busy', who, {
    remedy: 'stop it first, or give this one another address with --public-ip',
  })
}

/**
 * The identities that a daemon has had, until it ends: a move to another address that failed after its claim is tried
 * again, and a later one may lead back.
 */
export class OwnIdentities {
  readonly #claim: (publicIp: UnderlayAddress) => Promise<() => void>
  readonly #held = new Map<UnderlayAddress, () => void>()

  constructor(store: string, log: Log, directory = IDENTITY_DIRECTORY) {
    this.#claim = (publicIp) => claimIdentity({ publicIp, store }, log, directory)
  }

  /** @throws FlanneletteError `device-busy` when another daemon of this host has it */
  async claim(publicIp: UnderlayAddress): Promise<void> {
    if (!this.#held.has(publicIp)) this.#held.set(publicIp, await this.#claim(publicIp))
  }

  giveUp(): void {
    for (const giveUp of this.#held.values()) giveUp()
    this.#held.clear()
  }
}

/** While the lock is held: nobody else can have taken the file's place. */
function leaving(path: string, release: () => void): () => void {
  return () => {
    rmSync(path, { force: true })
    release()
  }
}

function holder(path: string): string {
  const pid = pidIn(path)
  return pid !== null && pid > 0 ? `pid ${pid}` : 'just starting'
}
