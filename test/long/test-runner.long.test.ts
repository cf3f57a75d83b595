// The test runner, shown small test suites that it must accept or refuse. Needs root: it makes namespaces.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { ROOT } from '../support/source-tree.ts'

/** Runs a suite of that one file; the lines are what the runner printed after Vitest's own report. */
function runSuite(text: string, ...words: string[]): { status: number | null; lines: string[] } {
  const folder = mkdtempSync(join(tmpdir(), 'flannelette-runner-'))
  try {
    writeFileSync(join(folder, 'planted.test.mjs'), text)
    const runner = join(ROOT, 'test/support/run-tests.mjs')
    const environment = { ...process.env, FLANNELETTE_TEST_RUN: undefined, VITEST: undefined, NO_COLOR: '1' }
    const { status, stdout } = spawnSync(process.execPath, [runner, '--root', folder, ...words], {
      encoding: 'utf8',
      env: environment,
    })
    return { status, lines: stdout.trimEnd().split('\n') }
  } finally {
    rmSync(folder, { recursive: true })
  }
}

const run = `import { execSync, spawn } from 'node:child_process'\n`

test('a clean suite passes, and the reason of a skip is printed', () => {
  const { status, lines } = runSuite(`test('a', () => {}); test('b', (context) => context.skip('no such device'))`)
  expect(lines.slice(-2)).toEqual(['skipped  b: no such device', '1 passed, 0 failed, 1 skipped'])
  expect(status).toBe(0)
})

test('a skip without a reason fails', () => {
  const { status, lines } = runSuite(`test('a', () => {}); test['skip']('b', () => {})`)
  expect(lines.slice(-1)).toEqual(['1 passed, 1 failed, 0 skipped'])
  expect(status).toBe(1)
})

test('a failing test, and a file that does not load, fail the run', () => {
  expect(runSuite(`test('a', () => { throw new Error('planted') })`)).toMatchObject({ status: 1 })
  expect(runSuite(`import './missing.mjs'`).lines.at(-1)).toBe('0 passed, 1 failed, 0 skipped')
})

test('a suite without tests fails', () => {
  const { status, lines } = runSuite('')
  expect(lines.at(-1)).toMatch(/^0 passed, \d failed, 0 skipped$/)
  expect(status).toBe(1)
})

test('a namespace, a device and a process that were left behind fail the run, and are gone', () => {
  const { status, lines } = runSuite(`${run}test('a', () => {
    execSync('ip netns add flx-left; ip link add left0 type bridge')
    spawn('sleep', ['4711'], { detached: true, stdio: 'ignore' }).unref()
  })`)
  const told = lines.filter((line) => line.includes('left behind')).join('\n')
  expect(told).toMatch(/network namespace flx-left\n.*network device left0 .*\n.*process \d+: sleep 4711$/)
  expect(lines.at(-1)).toBe('1 passed, 3 failed, 0 skipped')
  expect(status).toBe(1)
  expect(spawnSync('ip', ['netns', 'list'], { encoding: 'utf8' }).stdout).not.toContain('flx-left')
  expect(spawnSync('pgrep', ['-fx', 'sleep 4711']).status).toBe(1)
})

test('what a suite does to interfaces stays inside it', () => {
  const before = spawnSync('ip', ['-br', 'link'], { encoding: 'utf8' }).stdout
  const { status } = runSuite(`${run}test('a', () => { execSync('ip link set lo down; ip link set lo up') })
    test('b', () => { expect(JSON.parse(execSync('ip -j link')).map((link) => link.ifname)).toEqual(['lo']) })`)
  expect(status).toBe(0)
  expect(spawnSync('ip', ['-br', 'link'], { encoding: 'utf8' }).stdout).toBe(before)
})

test('a suite that hangs is ended by the time limit, with its processes', () => {
  const { status, lines } = runSuite(
    `${run}test('a', () => { spawn('sleep', ['4712'], { detached: true, stdio: 'ignore' }).unref(); for (;;); })`,
    ...['--minutes', '0.05'],
  )
  expect(lines.at(-2)).toContain('stopped by the time limit of 0.05 minutes')
  expect(lines.at(-1)).toBe('0 passed, 1 failed, 0 skipped')
  expect(status).toBe(1)
  expect(spawnSync('pgrep', ['-fx', 'sleep 4712']).status).toBe(1)
})
