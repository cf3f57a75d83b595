// Work that takes turns.
import { expect, test } from 'vitest'
import { Turns } from '../../src/turns.ts'
import { settle } from '../support/virtual-clock.ts'

test('each piece waits for the one before, one that fails fails alone, and the end is that of all', async () => {
  const turns = new Turns()
  const steps: string[] = []
  let go = () => {}
  const first = turns.take(async () => {
    steps.push('first')
    await new Promise<void>((resolve) => {
      go = resolve
    })
    throw new Error('no')
  })
  const second = turns.take(async () => steps.push('second'))
  const ended = turns.ended().then(() => steps.push('end'))
  await settle()
  expect(steps).toEqual(['first'])
  go()
  await expect(first).rejects.toThrow('no')
  await second
  await ended
  expect(steps).toEqual(['first', 'second', 'end'])
})
