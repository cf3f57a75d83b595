// What `lab exec` runs on a member.
import { expect, test } from 'vitest'
import { mainProgram } from '../../../src/lab/daemon-process.ts'
import { withOwnProgram } from '../../../src/lab/inside.ts'

test('flannelette on a member is this build, anything else what the member finds', () => {
  expect(withOwnProgram(['flannelette', 'ping', 'host2'])).toEqual([process.execPath, mainProgram(), 'ping', 'host2'])
  expect(withOwnProgram(['ip', 'link', 'show', 'flannelette'])).toEqual(['ip', 'link', 'show', 'flannelette'])
  expect(withOwnProgram([])).toEqual([])
})
