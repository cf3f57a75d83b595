// What a lab tells of a daemon that did not start: the daemon's last words, once.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { lastLine } from '../../../src/lab/daemon-process.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

test.each([
  ['a line for people', 'flannelette: --workers 17 is out of range\n', '--workers 17 is out of range'],
  ['a line of the log', '{"event":"x"}\n{"event":"ready","msg":"this node forwards"}\n', 'this node forwards'],
  ['nothing', '', ''],
])('%s', (_, log, words) => {
  const path = join(temporaryDirectory(), 'daemon.log')
  writeFileSync(path, log)
  expect(lastLine(path)).toBe(words)
})

test('no log at all', () => {
  expect(lastLine('/nonexistent/daemon.log')).toBe('')
})
