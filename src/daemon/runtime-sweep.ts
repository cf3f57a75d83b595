// What daemons leave in /run that were killed: locks that nobody holds, and directories that nobody needs then. A daemon
// that is stopped takes its own away, and the next one to start those of the dead; this is for when none will start.
import { rmSync } from 'node:fs'
import { isDirectory, removeEmptyDirectory } from '../make-directory.ts'
import { holdFileLock } from '../store/file-lock.ts'
import { IDENTITY_DIRECTORY, readIdentities } from './running-daemons.ts'
import { abandonedSeats, readSeats, SEAT_DIRECTORY, SEAT_LOCK } from './seats.ts'

/** Touches nothing of daemons that run. @throws Error of open(2) where this process may not look */
export async function sweepRuntime(
  identityDirectory = IDENTITY_DIRECTORY,
  seatDirectory = SEAT_DIRECTORY,
): Promise<void> {
  await readIdentities(identityDirectory, true)
  removeEmptyDirectory(identityDirectory)
  if (!isDirectory(seatDirectory)) return
  const lock = `${seatDirectory}/${SEAT_LOCK}`
  const release = await holdFileLock(lock, 0)
  if (release === null) return // somebody is about to take a seat, and sweeps himself
  try {
    await readSeats(seatDirectory, true)
    if (!(await abandonedSeats(seatDirectory)).includes(lock)) return
    rmSync(lock)
    removeEmptyDirectory(seatDirectory)
  } finally {
    release()
  }
}
