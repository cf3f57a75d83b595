// Commands of the config as processes: their words, their output, their end.
import { chmodSync, existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import {
  type CommandRun,
  killRunningCommands,
  runConfigured,
  wordsOfCommand,
} from '../../../src/host/configured-command.ts'
import { hasEnded } from '../../../src/host/network-namespace.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

const RUN: CommandRun = { variables: {}, environment: { PATH: process.env.PATH }, input: '\n', limitMs: 10_000 }

/** A script that says which words it got, a line each. */
function wordTeller(): string {
  const path = join(temporaryDirectory(), 'tell')
  writeFileSync(path, '#!/bin/sh\nfor word in "$@"; do echo "[$word]"; done\n')
  chmodSync(path, 0o755)
  return path
}

test.each([
  ['a  b\tc\nd', ['a', 'b', 'c', 'd']],
  [`$A \${A} x\${A}y $A_B`, ['1 2', '1 2', 'x1 2y', '']],
  ['$$ $ ${ a$', ['$$', '$', '${', 'a$']],
  ['"a b" ; c && d', ['"a', 'b"', ';', 'c', '&&', 'd']],
])('%j becomes the words that flannel makes of it', (text, words) => {
  expect(wordsOfCommand(text, { A: '1 2' })).toEqual(words)
})

test('a value never becomes a word, an option or a command of its own', async () => {
  const evil = '-x $(touch /tmp/never); a b'
  const text = `${wordTeller()} $EVIL end`
  expect(await runConfigured({ text, shell: false }, { ...RUN, variables: { EVIL: evil } })).toEqual({
    output: `[${evil}]\n[end]`,
    failure: null,
  })
  expect(existsSync('/tmp/never')).toBe(false)
})

test('with a shell the text is the shell’s, and values are in its environment', async () => {
  const run = { ...RUN, variables: { SUBNET: '10.5.2.0/24' }, input: 'of the peer\n' }
  const text = 'read -r line; echo "$SUBNET: $line" | tr a-z A-Z; echo done >&2'
  const { output, failure } = await runConfigured({ text, shell: true }, run)
  expect(failure).toBeNull()
  expect(output.split('\n').sort()).toEqual(['10.5.2.0/24: OF THE PEER', 'done'])
})

test.each([
  ['false', 'exit code 1'],
  ['/nonexistent/program', 'the program /nonexistent/program is missing'],
  ['/etc/passwd', '/etc/passwd may not be run'],
])('%s fails, and it is said how', async (text, failure) => {
  expect(await runConfigured({ text, shell: false }, RUN)).toMatchObject({ failure })
})

test('a command that does not end is killed at its deadline, with what it has started', async () => {
  // By then the shell has started, be the machine busy.
  const limitMs = 3000
  const start = performance.now()
  const text = 'sleep 60 & echo $!; sleep 60'
  const { output, failure } = await runConfigured({ text, shell: true }, { ...RUN, limitMs })
  expect({ output, failure }).toEqual({
    output: expect.stringMatching(/^\d+$/),
    failure: 'no end within 3 s, killed',
  })
  expect(performance.now() - start).toBeLessThan(3 * limitMs)
  await expect.poll(() => hasEnded(Number(output))).toBe(true)
})

test('what a command leaves running holds nobody up, and lives on', async () => {
  // Who waited for it would run into the time limit.
  const { output, failure } = await runConfigured({ text: 'sleep 60 & echo $!', shell: true }, RUN)
  expect(failure).toBeNull()
  process.kill(Number(output), 'SIGKILL')
})

test('a command does not outlive the process that runs it', async () => {
  const marker = join(temporaryDirectory(), 'survived')
  const end = runConfigured({ text: `(sleep 1; touch ${marker}) & sleep 60`, shell: true }, RUN)
  expect(process.listeners('exit')).toContain(killRunningCommands)
  killRunningCommands()
  expect(await end).toMatchObject({ failure: 'ended by SIGKILL (9)' })
  await new Promise((resolve) => setTimeout(resolve, 1500))
  expect(existsSync(marker)).toBe(false)
})

test('output that is cut off is said to be', async () => {
  const text = 'head -c 70000 /dev/zero | tr "\\0" y'
  const { output, ...rest } = await runConfigured({ text, shell: true }, RUN)
  expect([output.length, rest]).toEqual([65_536, { failure: null, isCut: true }])
})

test.each([
  ['a zero among its characters', 'echo a\u0000b', {}],
  ['more of them than the kernel takes', `echo ${'x'.repeat(3_000_000)}`, {}],
  ['a variable longer than the kernel takes', 'echo', { LONG: 'x'.repeat(3_000_000) }],
])('a command with %s fails, and nothing else does', async (_, text, variables) => {
  const { failure } = await runConfigured({ text, shell: false }, { ...RUN, variables })
  expect(failure).toMatch(/^echo could not be started: .{1,200}$/)
})
