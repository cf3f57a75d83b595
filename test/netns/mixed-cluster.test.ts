// Three nodes with IPv4 and IPv6, each with another dataplane: all pods reach each other by both families, and a node
// changes its dataplane without becoming another one.
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import type { DaemonStatus } from '../../src/daemon/status-file.ts'
import { hostFiles, labFiles } from '../../src/lab/lab-state.ts'
import { type Host, startDaemon } from '../support/daemon-under-test.ts'
import { killDaemon, labUnderTest } from '../support/lab-under-test.ts'
import { ip } from '../support/own-namespace.ts'

const FAMILIES = [4, 6] as const
const DEVICES = ['flannel.1', 'flannel-v6.1']

const lab = labUnderTest({ name: 'mixed', hosts: 3, pods: 1, kernel: ['host1'], auto: ['host3'], family: 'dual' })

async function expectAllReached(): Promise<void> {
  for (const family of FAMILIES) {
    const results = await lab().pingAll({ count: 5, family })
    expect(results).toHaveLength(6)
    expect(results.filter(({ sent, received }) => received !== sent)).toEqual([])
  }
}

test('a kernel, a userspace and a choosing node reach each other’s pods, also past strict filters', async () => {
  const taken = ['host1', 'host2', 'host3'].map((name) => {
    const { status } = lab().host(name)
    return [status?.dataplane, status?.dataplaneWhy]
  })
  expect(taken).toEqual([
    ['kernel', null],
    ['userspace', null],
    ['kernel', 'auto: this kernel has vxlan devices'],
  ])
  const strict = 'for file in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 1 >$file; done'
  for (const { name } of lab().hosts) await lab().exec(name, ['sh', '-c', strict])
  await expectAllReached()
})

test('a node with a device for each family changes both to the other dataplane and back', async () => {
  const files = hostFiles('mixed', 'host1')
  const host: Host = {
    ...{ namespace: lab().namespace('host1'), address: '192.168.56.11', store: labFiles('mixed').store },
    ...{ stateDirectory: files.stateDirectory, subnetFile: files.subnetFile },
  }
  const kinds = () =>
    DEVICES.map((name) => {
      const [link] = JSON.parse(ip('-n', host.namespace, '-json', '-details', 'link', 'show', name))
      return link.linkinfo.info_kind
    })
  const identityOf = (status: DaemonStatus | null | undefined) => [
    ...[status?.lease?.subnet, status?.lease?.ipv6Subnet, status?.node?.mac, status?.node?.ipv6Device?.mac],
    readFileSync(files.subnetFile, 'utf8'),
  ]
  const before = identityOf(lab().host('host1').status)
  expect(kinds()).toEqual(['vxlan', 'vxlan'])
  await killDaemon(lab(), 'host1')
  for (const [dataplane, kind] of [
    ['userspace', 'tun'],
    ['auto', 'vxlan'],
  ] as const) {
    const daemon = startDaemon(host, ['--dataplane', dataplane])
    await daemon.ready(2)
    expect(kinds()).toEqual([kind, kind])
    expect(identityOf(daemon.status)).toEqual(before)
    await expectAllReached()
    await daemon.end('SIGTERM')
  }
})
