// What doctor and ping start from, whatever stands in the state directory.
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { API_SOCKET } from '../../../src/daemon/api-server.ts'
import { askNodeView } from '../../../src/doctor/node-view.ts'
import { socketAnswers } from '../../../src/doctor/socket-answer.ts'
import { HEALTHY } from '../../support/status-example.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

test.each([
  ['a half', JSON.stringify(HEALTHY).slice(0, 300), /JSON|string/],
  ['of another version', JSON.stringify({ ...HEALTHY, version: 2 }), /^it is a status of version 2, not 1$/],
  ['without its parts', '{"version":1}', /^it is a status without pid$/],
  ['with a part of another kind', JSON.stringify({ ...HEALTHY, peers: [7] }), /^it is a status without peers$/],
  ['of another kind', '[1]', /^it is no status$/],
  ['no words at all', 'null', /^it is no status$/],
  ['nothing', '', /JSON/],
])('a status file that is %s is none, and why is said', async (_, text, problem) => {
  const directory = temporaryDirectory()
  writeFileSync(join(directory, 'status.json'), text)
  expect(await askNodeView(directory)).toEqual({
    stateDirectory: directory,
    status: null,
    statusProblem: expect.stringMatching(problem),
    alive: false,
    peers: [],
  })
})

test('a status file that is whole is taken', async () => {
  const directory = temporaryDirectory()
  writeFileSync(join(directory, 'status.json'), JSON.stringify(HEALTHY))
  expect((await askNodeView(directory)).peers).toEqual(HEALTHY.peers)
})

test('a daemon that has much to do is heard', async () => {
  const directory = temporaryDirectory()
  const late = createServer((_, response) => void setTimeout(() => response.end(JSON.stringify(HEALTHY)), 1200))
  const socket = join(directory, API_SOCKET)
  await new Promise<void>((resolve) => late.listen(socket, resolve))
  onTestFinished(() => void late.close())
  const [view, answers] = await Promise.all([askNodeView(directory), socketAnswers(socket)])
  expect([view.answers, view.peers, answers]).toEqual([true, HEALTHY.peers, true])
})
