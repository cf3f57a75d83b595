// What a command does when it is interrupted, and when its output finds no taker.
import { expect, test } from 'vitest'
import { interrupt, interruption, outputLoss, surviveLostOutput } from '../../../src/cli/interruption.ts'

const failure = (code: string) => Object.assign(new Error(`${code}: write`), { code })

test('nobody listens until a command does, which then gets the reason', () => {
  const reason = new Error('enough')
  expect(interrupt(reason)).toBe(false)
  const signal = interruption()
  expect(signal.aborted).toBe(false)
  expect(interrupt(reason)).toBe(true)
  expect(signal.reason).toBe(reason)
})

test('a closed pipe ends a command without a word, a full disk with one line', () => {
  expect(outputLoss('output', failure('EPIPE'))).toEqual({ kind: 'closed' })
  expect(outputLoss('output', failure('ENOSPC'))).toEqual({
    kind: 'failed',
    line: 'standard output cannot be written: no space is left; free some, or write elsewhere',
  })
  expect(outputLoss('error', failure('EIO'))).toEqual({
    kind: 'failed',
    line: 'standard error cannot be written: EIO: write',
  })
})

test('a node that forwards packets outlives its log', () => {
  surviveLostOutput()
  expect(outputLoss('error', failure('EPIPE'))).toEqual({ kind: 'ignored' })
  expect(outputLoss('error', failure('ENOSPC'))).toEqual({ kind: 'ignored' })
})
