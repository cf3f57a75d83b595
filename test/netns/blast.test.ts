// The small-packet generator and counter, over loopback: what one sends the other counts.

import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { expect, test } from 'vitest'
import type { BlastResult } from '../../bench/netns/blast.ts'
import { blastProgram } from '../../bench/netns/load.ts'

/** Below those that the kernel gives to connections. */
const PORT = '25678'
/** Nothing is sent so long at first, and at the end. */
const SILENCE_MS = 500
const blast = (...words: string[]): ChildProcess => spawn(process.execPath, [blastProgram(), ...words])

async function outcome(child: ChildProcess): Promise<BlastResult> {
  let text = ''
  child.stdout?.on('data', (chunk) => {
    text += chunk
  })
  await once(child, 'close')
  return JSON.parse(text)
}

test.each(['127.0.0.1', '::1'])(
  'a receiver counts every packet of a sender to %s that keeps its rate, and no time before the first',
  async (address) => {
    const receiver = blast('receive', address, PORT)
    const received = outcome(receiver)
    await once(receiver.stderr!, 'data') // it says when its socket is bound
    await pause(SILENCE_MS)
    const start = performance.now()
    const sent = await outcome(blast('send', address, PORT, '64', '1', '5000'))
    expect(sent).toMatchObject({ packets: 5000, refused: 0 })
    expect(sent.packetsPerSecond).toBe(Math.round(sent.packets / sent.seconds))
    expect(sent.seconds).toBeGreaterThanOrEqual(1)
    await pause(SILENCE_MS) // the kernel may hand over late
    receiver.stdin!.end()
    const { packets, seconds } = await received
    expect(packets).toBe(sent.packets)
    expect(seconds).toBeGreaterThan(0)
    // Silence at the beginning does not count.
    expect(seconds).toBeLessThanOrEqual((performance.now() - start) / 1000)
  },
)

test('a receiver that hears nothing says so', async () => {
  const received = await outcome(blast('receive', '127.0.0.1', PORT, '0.3'))
  expect(received).toEqual({ packets: 0, seconds: 0, packetsPerSecond: 0, refused: 0 })
})

test.each([
  [],
  ['send', 'nowhere', PORT, '64', '1'],
  ['send', '127.0.0.1', PORT, '64'],
  ['send', '127.0.0.1', PORT, '9000', '1'],
  ['receive', '127.0.0.1', PORT, 'soon'],
  ['receive', PORT, '1'],
])('wrong usage is told and ends with 2: %s %s %s %s %s', (...words) => {
  const { status, stderr } = spawnSync(process.execPath, [blastProgram(), ...words], { encoding: 'utf8' })
  expect(status).toBe(2)
  expect(stderr).toMatch(/^usage: /)
})
