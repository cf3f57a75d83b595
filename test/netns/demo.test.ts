// The demonstration: it works, it says so by its exit code, and it leaves nothing.
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { expect, test } from 'vitest'
import { mainProgram } from '../../src/lab/daemon-process.ts'
import { labFiles } from '../../src/lab/lab-state.ts'
import { existingNamespaces } from '../../src/lab/namespaces.ts'

test('lab demo --once shows pings, throughput, leases and one packet’s way, and leaves nothing', async () => {
  const argv = [mainProgram(), 'lab', 'demo', '--once']
  const { status, stdout } = spawnSync(process.execPath, argv, {
    encoding: 'utf8',
    env: { ...process.env, NO_COLOR: '1' },
  })
  expect(stdout).toMatch(/pod1\.1 .*pod3\.2/s)
  expect(stdout).toMatch(/bit\/s/)
  expect(stdout).toMatch(/host3 +10\.244\.3\.0\/24 +192\.168\.56\.13/)
  expect(stdout).toMatch(/vni +1 .*which overlay network/)
  expect(status).toBe(0)
  expect(await existingNamespaces('demo')).toEqual([])
  expect(existsSync(labFiles('demo').directory)).toBe(false)
})
