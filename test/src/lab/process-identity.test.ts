// Processes told apart from those that later get the same number.
import { spawn } from 'node:child_process'
import { expect, test } from 'vitest'
import { endProcesses, identify, isAlive, signal } from '../../../src/lab/process-identity.ts'

function sleeper(script = 'sleep 60') {
  const child = spawn('bash', ['-c', `echo ready; exec ${script}`], { stdio: ['ignore', 'pipe', 'ignore'] })
  return new Promise<NonNullable<ReturnType<typeof identify>>>((resolve, reject) => {
    child.stdout.once('data', () => {
      const identity = identify(child.pid ?? 0)
      if (identity === null) reject(new Error('it is gone already'))
      else resolve(identity)
    })
  })
}

test('a process is alive until it ends', async () => {
  const process = await sleeper()
  expect(isAlive(process)).toBe(true)
  await endProcesses([process], 2_000)
  expect(isAlive(process)).toBe(false)
})

test('another process with the same number is left alone', async () => {
  const process = await sleeper()
  const stranger = { ...process, startTicks: process.startTicks - 1 }
  expect(isAlive(stranger)).toBe(false)
  expect(signal(stranger, 'SIGKILL')).toBe(false)
  expect(isAlive(process)).toBe(true)
  await endProcesses([process], 2_000)
})

test('one that will not listen is ended all the same', async () => {
  const process = await sleeper(`bash -c 'trap "" TERM; echo; while :; do read -t 1 <> <(:); done'`)
  await endProcesses([process], 100)
  expect(isAlive(process)).toBe(false)
})

test('a number that nobody has is nobody', () => {
  expect(identify(2 ** 30)).toBeNull()
})
