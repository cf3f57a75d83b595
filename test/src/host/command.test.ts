// Programs that cannot be started.
import { expect, test } from 'vitest'
import { attempt } from '../../../src/host/command.ts'
import { runConfigured } from '../../../src/host/configured-command.ts'
import { exhaustFiles } from '../../support/exhausted-files.ts'

test('without a file left to open a program fails, and nothing else does', async () => {
  exhaustFiles()
  await expect(attempt(['true'])).rejects.toMatchObject({
    code: 'host-command',
    message: expect.stringMatching('EMFILE'),
  })
  const end = await runConfigured(
    { text: 'true', shell: false },
    { variables: {}, environment: { PATH: process.env.PATH }, input: '', limitMs: 1000 },
  )
  expect(end).toMatchObject({ failure: expect.stringMatching('EMFILE') })
})
