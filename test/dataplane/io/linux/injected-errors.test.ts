// Every system call of the dataplane, failing in every way that it can: one row for each, with the reaction. The rows
// stand in test/support/error-rows-*.ts.
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { EVENT_LOOP_ROWS } from '../../../support/error-rows-event-loop.ts'
import { MOVING_ROWS } from '../../../support/error-rows-moving.ts'
import { OPENING_ROWS } from '../../../support/error-rows-opening.ts'
import { PATH_ROWS } from '../../../support/error-rows-paths.ts'
import { WORKER_ROWS } from '../../../support/error-rows-worker.ts'
import { scripted } from '../../../support/scripted-libc.ts'

vi.mock('../../../../dataplane/io/linux/libc.ts', async () => {
  const { libcModule } = await import('../../../support/scripted-libc.ts')
  return libcModule
})

/** A copy of nothing: it has no way to fail. */
const CANNOT_FAIL = ['addressOf']
const ROWS = [...OPENING_ROWS, ...MOVING_ROWS, ...WORKER_ROWS, ...EVENT_LOOP_ROWS, ...PATH_ROWS]

beforeEach(() => scripted.reset())

describe('a system call that fails', () => {
  test.each(ROWS)('$call, $error: $reaction', (row) => row.check())
})

describe('the table', () => {
  test('has rows for every call that there is, and for no other', async () => {
    const libc = await vi.importActual<object>('../../../../dataplane/io/linux/libc.ts')
    const calls = Object.keys(libc).filter((name) => !CANNOT_FAIL.includes(name))
    expect([...new Set(ROWS.map(({ call }) => call))].sort()).toEqual(calls.sort())
  })

  test('has each row once', () => {
    const names = ROWS.map(({ call, error }) => `${call}: ${error}`)
    expect(names.filter((name, index) => names.indexOf(name) !== index)).toEqual([])
  })
})
