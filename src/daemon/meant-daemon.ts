// Which of a host's daemons a command means that was not told: the one of the usual state directory, else the only one
// that runs. Of several nobody guesses.
import { existsSync } from 'node:fs'
import { DEFAULT_STATE_DIRECTORY } from '../config/flag-table.ts'
import { FlanneletteError } from '../errors.ts'
import { type Neighbour, readSeats, SEAT_DIRECTORY } from './seats.ts'

export interface MeantDaemon {
  readonly stateDirectory: string
  /** Where it publishes its subnet; `null` when it does not run. */
  readonly subnetFile: string | null
  /** A line about others that run here, to be shown beside the answer; empty for none. */
  readonly notice: string
}

/** @throws FlanneletteError `usage` when several run and none of them has the usual directory */
export async function meantDaemon(
  usual: string = DEFAULT_STATE_DIRECTORY,
  seatDirectory: string = SEAT_DIRECTORY,
): Promise<MeantDaemon> {
  const running = await readSeats(seatDirectory)
  const known = running.find(({ stateDirectory }) => stateDirectory === usual)
  const meant = known ?? (existsSync(usual) || running.length !== 1 ? undefined : running[0])
  if (meant === undefined && running.length > 1 && !existsSync(usual)) {
    throw new FlanneletteError('usage', `${running.length} daemons run on this host`, {
      remedy: `say which one is meant: ${namesOf(running).join(', or ')}`,
    })
  }
  const others = namesOf(running.filter((one) => one !== meant))
  const notice = others.length === 0 ? '' : `on this host runs also: ${others.join(', ')}`
  return { stateDirectory: meant?.stateDirectory ?? usual, subnetFile: meant?.subnetFile ?? null, notice }
}

function namesOf(daemons: readonly Neighbour[]): string[] {
  return daemons.map(({ stateDirectory }) => `--state-dir ${stateDirectory}`)
}
