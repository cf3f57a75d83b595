// What the kernel's answer to the question for a VXLAN device means.
import { beforeEach, expect, test, vi } from 'vitest'
import type { CommandResult } from '../../../src/host/command.ts'
import { vxlanObstacle } from '../../../src/host/vxlan-probe.ts'

const answer = vi.hoisted(() => ({ stderr: '', admin: true, argv: [] as readonly string[] }))
vi.mock('../../../src/host/command.ts', async (original) => ({
  ...(await original<typeof import('../../../src/host/command.ts')>()),
  attempt: async (argv: readonly string[]): Promise<CommandResult> => {
    answer.argv = argv
    return { exitCode: 2, stdout: '', stderr: answer.stderr }
  },
}))
vi.mock('../../../src/host/capability.ts', async (original) => ({
  ...(await original<typeof import('../../../src/host/capability.ts')>()),
  isNetworkAdmin: () => answer.admin,
}))

beforeEach(() => {
  answer.admin = true
})

test.each([
  ['Error: Unknown device type.', 'this kernel has no vxlan devices'],
  ['RTNETLINK answers: Operation not supported', 'this kernel has no vxlan devices'],
  ['Error: Required attributes not provided to perform the operation.', null],
  ['RTNETLINK answers: Invalid argument', null],
])('%s', async (stderr, obstacle) => {
  answer.stderr = `${stderr}\n`
  expect(await vxlanObstacle()).toBe(obstacle)
  expect(answer.argv).toEqual(['ip', 'link', 'add', 'type', 'vxlan'])
})

test('without the right to ask, and with an answer that tells nothing, the caller hears of it', async () => {
  answer.stderr = 'RTNETLINK answers: Operation not permitted\n'
  await expect(vxlanObstacle()).rejects.toMatchObject({ code: 'not-permitted' })
  answer.stderr = 'Cannot open network namespace "x"\n'
  await expect(vxlanObstacle({ namespace: 'x' })).rejects.toMatchObject({ code: 'host-command' })
  answer.admin = false
  await expect(vxlanObstacle()).rejects.toMatchObject({
    code: 'not-permitted',
    message: expect.stringContaining('CAP_NET_ADMIN'),
  })
})
