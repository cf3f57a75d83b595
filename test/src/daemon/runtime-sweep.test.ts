// Files in /run of daemons that were killed.
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { claimIdentity } from '../../../src/daemon/identity-claim.ts'
import { sweepRuntime } from '../../../src/daemon/runtime-sweep.ts'
import { Seat } from '../../../src/daemon/seats.ts'
import { holdFileLock } from '../../../src/store/file-lock.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

function host() {
  const log = new RecordingLog()
  const [identities, seats] = ['identity', 'seats'].map((name) => `${temporaryDirectory()}/${name}`) as [string, string]
  return {
    identities,
    seats,
    sweep: () => sweepRuntime(identities, seats),
    claim: () => claimIdentity({ publicIp: 0xc0000201, store: 'file:/run/store' }, log, identities, 0),
    seat: new Seat({ stateDirectory: '/state/a', subnetFile: '/run/a.env' }, log, seats),
  }
}

test('those of the dead go, those of a daemon that runs stay; with it all is gone', async () => {
  const { identities, seats, sweep, claim, seat } = host()
  const giveUp = await claim()
  await seat.take()
  const own = [readdirSync(identities), readdirSync(seats)]
  writeFileSync(`${identities}/192.0.2.9-a`, '4194304\n')
  writeFileSync(`${seats}/1-1`, '{"pid":4194304}\n')
  await sweep()
  expect([readdirSync(identities), readdirSync(seats)]).toEqual(own)
  giveUp()
  seat.leave()
  expect([readdirSync(identities), readdirSync(seats)]).toEqual([[], ['lock']])
  await sweep()
  expect([existsSync(identities), existsSync(seats)]).toEqual([false, false])
  await sweep()
})

test('nothing is taken from somebody who is about to take a seat, nor what is not ours', async () => {
  const { seats, sweep } = host()
  mkdirSync(seats)
  const release = await holdFileLock(`${seats}/lock`, 0)
  await sweep()
  expect(readdirSync(seats)).toEqual(['lock'])
  release!()
  writeFileSync(`${seats}/notes`, 'of somebody')
  await sweep()
  expect(readdirSync(seats)).toEqual(['lock', 'notes'])
})
