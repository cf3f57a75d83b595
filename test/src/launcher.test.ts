// The first thing that runs: what cannot carry the program is told so in one line, on whatever Node it is.
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { transformWithOxc } from 'vite'
import { expect, test } from 'vitest'
import { ROOT } from '../support/source-tree.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

/** Starts the launcher on a Node that says it is another one; beside it a program that says that it was started. */
async function launch(
  version: string,
  platform = 'linux',
  program = 'export const start = () => console.log("started")',
) {
  const directory = temporaryDirectory()
  const source = readFileSync(join(ROOT, 'src/launcher.cts'), 'utf8').replace('./main.ts', './main.mjs')
  const { code } = await transformWithOxc(source, 'launcher.ts', { target: 'es2018' })
  const pretence = `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } })
    Object.defineProperty(process, 'platform', { value: '${platform}' })`
  writeFileSync(join(directory, 'launcher.cjs'), code)
  writeFileSync(join(directory, 'main.mjs'), program)
  writeFileSync(join(directory, 'pretend.cjs'), pretence)
  const argv = ['--require', join(directory, 'pretend.cjs'), join(directory, 'launcher.cjs')]
  const { status, stdout, stderr } = spawnSync(process.execPath, argv, { encoding: 'utf8' })
  return { status, stdout, stderr }
}

test.each(['18.20.1', '20.18.3', '8.17.0', '0.12.18'])('Node %s is refused by name', async (version) => {
  const stderr = `flannelette: Node ${version} is too old for flannelette; use Node 20.19 or newer\n`
  expect(await launch(version)).toEqual({ status: 2, stdout: '', stderr })
})

test.each(['darwin', 'win32', 'freebsd'])('%s is refused by name', async (platform) => {
  const stderr = `flannelette: this is ${platform}, and flannelette runs on Linux only; use a Linux machine\n`
  expect(await launch('20.19.0', platform)).toEqual({ status: 2, stdout: '', stderr })
})

test.each(['20.19.0', '22.0.0', '26.1.0'])('Node %s is let through', async (version) => {
  expect(await launch(version)).toEqual({ status: 0, stdout: 'started\n', stderr: '' })
})

test('a program that is not whole is one line', async () => {
  const { status, stderr } = await launch('20.19.0', 'linux', 'import "not-installed"')
  expect(status).toBe(1)
  expect(stderr).toMatch(/^flannelette: [^\n]*not-installed[^\n]*; install the package again\n$/)
})
