// The demonstration: it works, it says so by its exit code, and it leaves nothing.
import { existsSync } from 'node:fs'
import { expect, test } from 'vitest'
import { attempt } from '../../src/host/command.ts'
import { mainProgram } from '../../src/lab/daemon-process.ts'
import { labFiles } from '../../src/lab/lab-state.ts'
import { existingNamespaces } from '../../src/lab/namespaces.ts'

/** For what hangs. */
const LIMIT_MS = 150_000

test('lab demo --once shows pings, throughput, leases and one packet’s way, and leaves nothing', async () => {
  const argv = ['env', 'NO_COLOR=1', process.execPath, mainProgram(), 'lab', 'demo', '--once']
  const { exitCode, stdout } = await attempt(argv, { timeoutMs: LIMIT_MS })
  expect(stdout).toMatch(/pod1\.1 .*pod3\.2/s)
  expect(stdout).toMatch(/bit\/s/)
  expect(stdout).toMatch(/host3 +10\.244\.3\.0\/24 +192\.168\.56\.13/)
  expect(stdout).toMatch(/vni +1 .*which overlay network/)
  expect(exitCode).toBe(0)
  expect(await existingNamespaces('demo')).toEqual([])
  expect(existsSync(labFiles('demo').directory)).toBe(false)
})
