// Whether iptables sees what crosses a bridge, by the settings that the module brings.
import { writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { bridgeNetfilterProblem } from '../../../src/host/bridge-netfilter.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

test('each family has a setting of its own, and only those of this node count', () => {
  const directory = temporaryDirectory()
  const both = bridgeNetfilterProblem(['ip', 'ip6'], directory)
  expect(both?.message).toContain(`${directory}/bridge-nf-call-iptables, no ${directory}/bridge-nf-call-ip6tables`)
  expect(both?.remedy).toContain('modprobe br_netfilter')
  writeFileSync(`${directory}/bridge-nf-call-iptables`, '0\n')
  expect(bridgeNetfilterProblem(['ip'], directory)).toBeNull()
  expect(bridgeNetfilterProblem(['ip', 'ip6'], directory)?.message).toContain('bridge-nf-call-ip6tables')
})
