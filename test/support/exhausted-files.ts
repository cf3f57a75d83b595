// A process that may open no more files, as one that leaks them or is given too few.
import { execFileSync } from 'node:child_process'
import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { expect, onTestFinished } from 'vitest'

/** Takes all files that this process may open, until the test is over. */
export function exhaustFiles(): void {
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
