// What doctor says to do about dropped packets, by the reason.
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { DROP_REASON_NAMES } from '../../../../dataplane/index.ts'
import { dropRemedy } from '../../../../src/doctor/checks/drop-remedies.ts'

test('each reason of drops leads to its row in the docs, those with a cause outside the daemon also to what to do', () => {
  const page = readFileSync('docs/troubleshooting.md', 'utf8')
  for (const reason of DROP_REASON_NAMES) {
    const anchor = /docs\/troubleshooting\.md#([\w-]+) says what it means$/.exec(dropRemedy(reason))?.[1]
    expect(page).toContain(`<a id="${anchor}">`)
  }
  expect(dropRemedy('inner-destination-mac')).toMatch(
    /^peers know another MAC of this node: .*restart the daemon; docs/,
  )
})
