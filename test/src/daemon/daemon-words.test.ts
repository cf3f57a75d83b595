// The command line of a running daemon, as others read it.
import { expect, test } from 'vitest'
import { optionOf } from '../../../src/daemon/daemon-words.ts'

test.each([
  [['node', 'main.js', 'run', '--docker-opts-file', '/a', '--iface', 'eth0'], '/a'],
  [['run', '-docker-opts-file=/b=c'], '/b=c'],
  [['run', '--docker-opts-file'], null],
  [['run', '--docker-opts-files=/d', 'docker-opts-file'], null],
])('a command line: %j gives the flag %j', (words, value) => {
  expect(optionOf(words, 'docker-opts-file')).toBe(value)
})
