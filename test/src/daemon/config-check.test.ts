// What a running node makes of a network config that somebody changes: a line, whatever stands in it.
import { expect, onTestFinished, test } from 'vitest'
import { ConfigCheck } from '../../../src/daemon/config-check.ts'
import { CONFIG, makeHost } from '../../support/agent-host.ts'
import { settle } from '../../support/virtual-clock.ts'

/** What is said of a config that has come in place of the node's. */
async function saidOf(config: string): Promise<string[]> {
  const { shared, clock, log } = makeHost(config)
  const store = shared.open(() => 0)
  const check = new ConfigCheck({ store, clock, log, rawConfig: CONFIG, whyNotStart: () => '' })
  onTestFinished(() => check.stop())
  check.lookNow()
  await settle()
  return log.of('config-changed').map(({ message }) => message)
}

test('one that is nested without end is another text, and no end of the node', async () => {
  const deep = `{"Network":${'['.repeat(200_000)}${']'.repeat(200_000)}}`
  expect(await saidOf(deep)).toEqual([
    'the network config in the store has changed (the text): restart this node to use it',
  ])
})

test('names of fields stand in one short line', async () => {
  const odd = Object.fromEntries(Array.from({ length: 5000 }, (_, n) => [`\u001b[2Jkey\n${n}`, n]))
  const [line, ...more] = await saidOf(JSON.stringify({ ...JSON.parse(CONFIG), ...odd }))
  expect([line!.length < 400, /\p{Cc}/u.test(line!), more]).toEqual([true, false, []])
})
