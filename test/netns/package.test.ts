// The package as somebody else gets it: packed, installed into an empty prefix on a machine without compiler or
// network, and run from there. Its dependencies come from this tree, where the lock file has put them.
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ROOT } from '../support/source-tree.ts'

/** All that the machine has: what npm needs, and what a lab needs (docs: the packages of a demo). */
const PROGRAMS = 'node sh tee cat ip bridge ping nft ethtool'.split(' ')

// Not below tmpdir(): Node looks for packages in the folders above as well, and anybody may have left some there.
const place = mkdtempSync('/var/tmp/flannelette-package-')
const bin = join(place, 'bin')
const prefix = join(place, 'prefix')
let packed: string[] = []

/** Runs words with the programs of that machine and no others. */
function run(program: string, ...argv: string[]) {
  const env = { PATH: bin, HOME: place, NO_COLOR: '1' }
  const { status, stdout, stderr } = spawnSync(program, argv, { cwd: prefix, env, encoding: 'utf8', timeout: 240_000 })
  return { status, stdout, stderr }
}

const flannelette = (...argv: string[]) => run(join(prefix, 'node_modules/.bin/flannelette'), ...argv)

function whereIs(program: string): string {
  const folders = [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin', '/sbin']
  const found = folders.map((folder) => join(folder, program)).find((path) => existsSync(path))
  if (found === undefined) throw new Error(`${program} is not here`)
  return found
}

interface Packed {
  readonly name: string
  readonly filename: string
  readonly files: readonly { readonly path: string }[]
}

/** Packs folders into `place` as they are: a build now would pull what runs in other files from under their feet. */
function pack(folders: readonly string[], ...flags: string[]): Packed[] {
  const words = [
    'pack',
    '--json',
    '--loglevel=error',
    '--ignore-scripts',
    '--pack-destination',
    place,
    ...flags,
    ...folders,
  ]
  const told = execFileSync('npm', words, { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
  return JSON.parse(told.slice(told.indexOf('[\n')))
}

/** Folders of what the lock file lets somebody have who installs the package. */
function dependencies(wanted: 'needed' | 'optional'): string[] {
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { dev?: boolean; optional?: boolean }>
  }
  const found = Object.entries(packages).filter(([path, { dev, optional }]) => {
    const isWanted = path !== '' && dev !== true && (optional === true) === (wanted === 'optional')
    return isWanted && existsSync(join(ROOT, path))
  })
  return found.map(([path]) => path)
}

const packFolders = (paths: readonly string[]): Packed[] =>
  paths.length === 0
    ? []
    : pack(
        paths.map((path) => `./${path}`),
        '--ignore-scripts',
      )

/** A version of its own that a dependency has below it: `node_modules/PARENT/node_modules/CHILD`. */
const NESTED = /^node_modules\/(.+)\/node_modules\//

/** What npm must be told of those, who would ask the registry for them. */
function overrides(paths: readonly string[]): Record<string, Record<string, string>> {
  const entries = paths.map((path) => [NESTED.exec(path)![1]!, byName(packFolders([path]))] as const)
  return Object.fromEntries(entries)
}

const byName = (tarballs: readonly Packed[]): Record<string, string> =>
  Object.fromEntries(tarballs.map(({ name, filename }) => [name, `file:${join(place, filename)}`]))

beforeAll(() => {
  for (const folder of [bin, prefix]) mkdirSync(folder)
  for (const program of PROGRAMS)
    symlinkSync(program === 'node' ? process.execPath : whereIs(program), join(bin, program))
  const own = pack([])
  packed = own.flatMap(({ files }) => files.map(({ path }) => path))
  const [nested, direct] = [true, false].map((below) =>
    dependencies('needed').filter((path) => NESTED.test(path) === below),
  )
  const manifest = {
    private: true,
    dependencies: byName([...own, ...packFolders(direct!)]),
    optionalDependencies: byName(packFolders(dependencies('optional'))),
    overrides: overrides(nested!),
  }
  writeFileSync(join(prefix, 'package.json'), JSON.stringify(manifest))
  const quiet = ['--no-audit', '--no-fund', '--loglevel=error']
  const installed = run(whereIs('npm'), 'install', '--offline', ...quiet)
  expect(installed.stderr).toBe('')
  expect(installed.status).toBe(0)
}, 300_000)

afterAll(() => rmSync(place, { recursive: true, force: true }))

test('it holds the program and its pages, and nothing that only its makers need', () => {
  const ours =
    /^(dist\/(src|dataplane)\/.+\.c?js|docs\/.+\.md|docs\/status\.schema\.json|docs\/deploy\/.+|README\.md|LICENSE|package\.json)$/
  expect(packed.filter((path) => !ours.test(path))).toEqual([])
  expect(packed).toContain('dist/src/launcher.cjs')
  expect(packed).toContain('dist/dataplane/memory/kernels.generated.js')
})

test('it is told apart from other versions', () => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }
  expect(flannelette('--version')).toEqual({ status: 0, stdout: `${version}\n`, stderr: '' })
})

test('it explains itself', () => {
  const { status, stdout, stderr } = flannelette('run', '--help')
  expect([status, stderr]).toEqual([0, ''])
  expect(stdout).toMatch(/^Examples:\n.*--store.*Exit codes:/s)
})

test('a start that cannot be is one line with the remedy', () => {
  const { status, stdout, stderr } = flannelette(
    'run',
    '--store',
    `file:${place}/none`,
    '--state-dir',
    `${place}/state`,
  )
  expect([status, stdout]).toEqual([1, ''])
  expect(stderr).toMatch(/^\{"level":"fatal"[^\n]*none does not exist[^\n]*--store"\}\n$/)
})

test('the raw driver says what it lacks: its package could not be built here', () => {
  expect(existsSync(join(prefix, 'node_modules/raw-socket/build/Release/raw.node'))).toBe(false)
  try {
    const { status, stderr } = flannelette('lab', 'up', '--name', 'rawless', '--hosts', '2', '--driver', 'raw')
    expect(status).toBe(1)
    expect(stderr).toMatch(/--driver raw needs the npm package raw-socket.*npm install raw-socket/)
  } finally {
    flannelette('lab', 'down', '--name', 'rawless')
  }
})

describe('a lab of the installed package', () => {
  const lab = (...argv: string[]) => flannelette('lab', ...argv, '--name', 'packaged')

  afterAll(() => void lab('down'))

  test('comes up, carries packets between all pods, and goes', () => {
    for (const words of [['up', '--hosts', '2', '--pods', '1'], ['ping', 'all'], ['down']]) {
      expect(lab(...words)).toEqual({
        status: 0,
        stdout: expect.any(String),
        stderr: expect.not.stringMatching(/fail|WARN/),
      })
    }
  })
})
