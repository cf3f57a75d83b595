// A node that changes from iptables to nftables and back, or to another network, with a daemon that ended in between.
import { readFileSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { labFiles } from '../../src/lab/lab-state.ts'
import { startDaemon, twoHosts, writeConfig } from '../support/daemon-under-test.ts'
import { filterListing, IPV4, IPV6, natListing, nftListing } from '../support/firewall-listings.ts'
import { printed } from '../support/lab-firewall.ts'
import { killDaemon, labUnderTest } from '../support/lab-under-test.ts'
import { ip } from '../support/own-namespace.ts'

const lab = labUnderTest({ name: 'fwmode', hosts: 2, pods: 1, ipv6: true, daemonArguments: ['--ip-masq'] })
const onHost = (...argv: string[]) => printed(lab(), 'host1', ...argv)
const list = async (program: string, table: string) => (await onHost(program, '-t', table, '-S')).trimEnd().split('\n')
const nat = natListing(IPV4)

test('a start in the other mode replaces them, and a start in this one takes the tables away', async () => {
  const path = `${labFiles('fwmode').store}/config`
  const config = readFileSync(path, 'utf8')
  await killDaemon(lab(), 'host1')
  writeFileSync(path, config.replace('{', '{"EnableNFTables":true,'))
  await lab().restart('host1')
  expect(await list('iptables', 'nat')).toEqual(nat.slice(0, 4))
  expect(await list('ip6tables', 'filter')).toEqual(filterListing(IPV6).slice(0, 3))
  expect(await onHost('nft', 'list', 'table', 'ip', 'flannel-ipv4')).toBe(nftListing('ip', 'flannel-ipv4', IPV4))
  await killDaemon(lab(), 'host1')
  writeFileSync(path, config)
  await lab().restart('host1')
  expect(await list('iptables', 'nat')).toEqual(nat)
  expect(await onHost('nft', 'list', 'tables')).not.toContain('flannel')
})

test('a start with another network and VNI leaves nothing of the former one', async () => {
  const [host] = twoHosts()
  const words = ['--ip-masq', '--ip-blackhole-route']
  const former = startDaemon(host, words)
  await former.ready(0)
  await former.end('SIGTERM')
  const seen = () => {
    const inside = (...argv: string[]) => ip('netns', 'exec', host.namespace, ...argv)
    const rules = [inside('iptables', '-t', 'nat', '-S'), inside('iptables', '-S')]
    return [...rules, inside('ip', 'route', 'show'), inside('ip', '-br', 'address', 'show')].join('')
  }
  expect(seen()).toMatch(/10\.244\.[\s\S]*flannel\.1 /)
  writeConfig(host.store, { Network: '10.99.0.0/16', Backend: { Type: 'vxlan', VNI: 2 } })
  const later = startDaemon(host, words)
  await later.ready(0)
  expect(seen()).toMatch(/10\.99\.[\s\S]*flannel\.2 /)
  expect(seen()).not.toMatch(/10\.244\.|flannel\.1 /)
})
