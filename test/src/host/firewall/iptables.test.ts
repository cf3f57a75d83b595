// What iptables says of itself, and what is said when it is not there.
import { expect, onTestFinished, test } from 'vitest'
import { Iptables, parseIptablesVersion } from '../../../../src/host/firewall/iptables.ts'
import { Nftables } from '../../../../src/host/firewall/nftables.ts'
import { temporaryDirectory } from '../../../support/temporary-directory.ts'

test.each([
  ['iptables v1.8.9 (nf_tables)', { variant: 'nft', randomFully: true }],
  ['ip6tables v1.8.11 (legacy)', { variant: 'legacy', randomFully: true }],
  ['iptables v1.6.2', { variant: 'legacy', randomFully: true }],
  ['iptables v1.6.1', { variant: 'legacy', randomFully: false }],
  ['iptables v1.4.21', { variant: 'legacy', randomFully: false }],
  ['sh: not found', null],
])('"%s"', (line, version) => {
  expect(parseIptablesVersion(line)).toEqual(version)
})

test.each([
  ['iptables', 'iptables', () => new Iptables('ip', { randomFully: true })],
  ['ip6tables', 'iptables', () => new Iptables('ip6', { randomFully: true })],
  ['nft', 'nftables', () => new Nftables({ randomFully: true })],
])('without %s the error names the package %s', async (program, debianPackage, make) => {
  const path = process.env.PATH
  onTestFinished(() => {
    process.env.PATH = path
  })
  process.env.PATH = temporaryDirectory()
  await expect(make().sync([])).rejects.toMatchObject({
    code: 'host-command',
    message: `the program \`${program}\` is missing`,
    remedy: `install it: apt-get install ${debianPackage}`,
  })
})
