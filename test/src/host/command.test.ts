// Programs that cannot be started.
import { execFileSync } from 'node:child_process'
import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { expect, onTestFinished, test } from 'vitest'
import { attempt } from '../../../src/host/command.ts'
import { runConfigured } from '../../../src/host/configured-command.ts'

/** Takes all files that this process may open, until the test is over. */
function exhaustFiles(): void {
  const limit = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1'))?.[1]
  const setLimit = (soft: number | string) => execFileSync('prlimit', ['--pid', `${process.pid}`, `--nofile=${soft}:`])
  const taken: number[] = []
  onTestFinished(() => {
    for (const fd of taken) closeSync(fd)
    setLimit(limit!)
  })
  setLimit(readdirSync('/proc/self/fd').length + 20)
  expect(() => {
    for (;;) taken.push(openSync('/dev/null', 'r'))
  }).toThrow('EMFILE')
}

test('without a file left to open a program fails, and nothing else does', async () => {
  exhaustFiles()
  await expect(attempt(['true'])).rejects.toMatchObject({
    code: 'host-command',
    message: expect.stringMatching('EMFILE'),
  })
  const end = await runConfigured(
    { text: 'true', shell: false },
    { variables: {}, environment: { PATH: process.env.PATH }, input: '', limitMs: 1000 },
  )
  expect(end).toMatchObject({ failure: expect.stringMatching('EMFILE') })
})
