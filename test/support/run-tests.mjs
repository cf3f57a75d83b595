// `npm test`: runs Vitest and ends with the line `N passed, N failed, N skipped`.
//
//   node test/support/run-tests.mjs [--all | --project NAME] [--root DIR] [--minutes N] [FILTER…]
//
// `--root` runs the *.test.mjs of another folder with Vitest's globals, for the tests of this very file.
//
// The whole run lives in its own network, process and mount namespace (unshare), with its own /run: tests cannot
// touch the machine's network, two runs cannot disturb each other, whatever a test left behind is plainly visible at
// the end (and fails the run), and all of it goes away with the first process of the namespace, also when the time
// limit strikes. Plain JavaScript, because it runs before anything is known to work.
import { spawn, spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { startVitest } from 'vitest/node'

const SELF = fileURLToPath(import.meta.url)
const CONFIG = fileURLToPath(new URL('../vitest.config.ts', import.meta.url))
const INSIDE = 'FLANNELETTE_TEST_RUN'
/** Programs of the run itself, as seen at its end; everything else that still runs was left behind by a test. */
const OWN = new Set([1, process.pid])

const options = parse(process.argv.slice(2))
const done = process.env[INSIDE] === undefined ? await outside() : await inside()
process.exit(done)

function parse(argv) {
  const { values, positionals } = parseArgs({
    args: argv,
    allowPositionals: true,
    options: {
      all: { type: 'boolean', default: false },
      project: { type: 'string' },
      root: { type: 'string' },
      minutes: { type: 'string' },
    },
  })
  const usual = values.all ? ['unit', 'measured', 'netns', 'uml', 'long'] : ['unit', 'netns']
  return {
    filters: positionals,
    root: values.root,
    minutes: Number(values.minutes ?? (values.all ? 90 : 10)),
    projects: values.project === undefined ? usual : [values.project],
  }
}

/** Starts this file again in namespaces of its own, holds the clock, and passes the exit code on. */
async function outside() {
  const isolate = ['--mount', '--propagation', 'private', '--net', '--pid', '--fork', '--kill-child', '--mount-proc']
  if (spawnSync('unshare', [...isolate, 'true']).status !== 0) {
    console.log('not privileged: the netns tests are left out (run as root, with the right to make namespaces)')
    options.projects = options.projects.filter((name) => name === 'unit')
    return await inside({ leftOut: ['netns: needs root and the right to make namespaces'] })
  }
  // All of /run: a mount on a directory in it would vanish when somebody outside removes that directory.
  // bash is process 1 of the namespace because it reaps orphans, which node would not.
  const script = `ip link set lo up
    mount -t tmpfs tmpfs /run && mkdir /run/netns /run/flannelette && mount -t sysfs sysfs /sys
    "$@" & wait $!`
  const child = spawn(
    'unshare',
    [...isolate, 'bash', '-c', script, 'run-tests', process.execPath, SELF, ...process.argv.slice(2)],
    { stdio: ['ignore', 'inherit', 'inherit'], env: { ...process.env, [INSIDE]: String(process.pid) } },
  )
  let killed = ''
  const kill = (why) => {
    killed = why
    child.kill('SIGKILL')
  }
  const limit = setTimeout(() => kill(`the time limit of ${options.minutes} minutes`), options.minutes * 60_000)
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => kill(signal))
  const code = await new Promise((resolve) => child.on('exit', (status) => resolve(status ?? 1)))
  clearTimeout(limit)
  if (killed === '') return code
  console.log(`\nstopped by ${killed}; all processes and namespaces of the run are gone with it`)
  console.log('0 passed, 1 failed, 0 skipped')
  return killed.startsWith('SIG') ? 130 : 1
}

/** Runs the tests here and prints what came of them. */
async function inside({ leftOut = [] } = {}) {
  const before = { namespaces: namespaces(), processes: new Set(processes().map(({ pid }) => pid)) }
  const vitest = await startVitest('test', options.filters, {
    watch: false,
    reporters: ['default'],
    passWithNoTests: true, // the closing line says it better
    ...(options.root === undefined
      ? { project: options.projects, config: CONFIG }
      : { root: options.root, config: false, globals: true, include: ['*.test.mjs'] }),
  })
  const outcome = countTests(vitest)
  await vitest.close()
  if (process.env[INSIDE] !== undefined) outcome.failures.push(...leftBehind(before))
  return report(outcome, leftOut)
}

function countTests(vitest) {
  const outcome = { passed: 0, failed: 0, skips: [], failures: [] }
  for (const module of vitest.state.getTestModules()) {
    for (const error of module.errors()) outcome.failures.push(`${module.relativeModuleId}: ${error.message}`)
    for (const test of module.children.allTests()) {
      const result = test.result()
      if (result.state === 'passed') outcome.passed += 1
      else if (result.state === 'failed') outcome.failed += 1
      else if (result.state === 'skipped' && result.note) outcome.skips.push(`${test.fullName}: ${result.note}`)
      else outcome.failures.push(`${module.relativeModuleId}: ${test.fullName}: ${result.state} without a reason`)
    }
  }
  for (const error of vitest.state.getUnhandledErrors()) outcome.failures.push(`unhandled: ${error?.message ?? error}`)
  return outcome
}

function report({ passed, failed, skips, failures }, leftOut) {
  for (const skip of [...skips, ...leftOut]) console.log(`skipped  ${skip}`)
  for (const failure of failures) console.log(`failed   ${failure}`)
  const bad = failed + failures.length
  if (passed + bad === 0) console.log('failed   no test ran')
  console.log(`${passed} passed, ${bad} failed, ${skips.length + leftOut.length} skipped`)
  return bad > 0 || passed === 0 ? 1 : 0
}

/** Namespaces, links and processes that the tests should have taken away. */
function leftBehind(before) {
  const names = [...namespaces()].filter((name) => !before.namespaces.has(name))
  const links = [...linksHere()].filter((name) => name !== 'lo')
  // What was told to stop may need a moment to go, or seconds on a machine that has much to do.
  for (let tries = 0; tries < 100 && strayed(before).length > 0; tries += 1) spawnSync('sleep', ['0.1'])
  return [
    ...names.map((name) => `left behind: network namespace ${name}`),
    ...links.map((name) => `left behind: network device ${name} in the namespace of the run`),
    ...strayed(before).map(({ pid, words }) => `left behind: process ${pid}: ${words}`),
  ]
}

function strayed(before) {
  return processes().filter(({ pid, words }) => !OWN.has(pid) && !before.processes.has(pid) && !isOwnTool(words))
}

/** Vitest's bundler keeps a service process until its parent ends. */
function isOwnTool(words) {
  return words.includes('/esbuild ') || words.includes('node_modules/vitest/')
}

function namespaces() {
  try {
    return new Set(readdirSync('/run/netns'))
  } catch {
    return new Set()
  }
}

function linksHere() {
  const { stdout } = spawnSync('ip', ['-json', 'link', 'show'], { encoding: 'utf8' })
  return JSON.parse(stdout || '[]').map(({ ifname }) => ifname)
}

function processes() {
  const found = []
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue
    try {
      const words = readFileSync(`/proc/${entry}/cmdline`, 'latin1').replaceAll('\0', ' ').trim()
      // Kernel threads and zombies have no command line.
      if (words !== '') found.push({ pid: Number(entry), words })
    } catch {
      // It ended between the listing and the look.
    }
  }
  return found
}
