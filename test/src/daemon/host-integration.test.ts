// A host without any of the programs: what is said, what the node is made of it, and that it is tried again.
import { expect, onTestFinished, test } from 'vitest'
import { parseIpv4 } from '../../../dataplane/wire/address.ts'
import { parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { HostIntegration } from '../../../src/daemon/host-integration.ts'
import type { LocalVtep } from '../../../src/host/dataplane.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'
import { settle, VirtualClock } from '../../support/virtual-clock.ts'

const LOCAL: LocalVtep = {
  encapsulation: 'vxlan',
  deviceName: 'flannel.1',
  vni: 1,
  port: 8472,
  underlayInterface: 'eth0',
  underlayAddress: parseIpv4('192.0.2.1')!,
  network: parsePrefix('10.244.0.0/16')!,
  ipv6Network: null,
  mtuBytes: 1450,
  mac: 1,
  overlayAddress: parseIpv4('10.244.1.0')!,
  subnet: parsePrefix('10.244.1.0/24')!,
  ipv6Subnet: null,
}

function withoutPrograms(changes: { masquerade: boolean; forwardRules: boolean }) {
  const path = process.env.PATH
  process.env.PATH = temporaryDirectory()
  onTestFinished(() => {
    process.env.PATH = path
  })
  const clock = new VirtualClock()
  const log = new RecordingLog()
  const host = new HostIntegration({ clock, log, randomFully: true, blackholeRoute: false, resyncMs: 5000, ...changes })
  onTestFinished(() => host.stop('keep'))
  const failures = () => log.lines.filter(({ event }) => event === 'firewall-failed')
  return { clock, host, failures }
}

test('the missing program is named with its package; a node that is to masquerade lacks something', async () => {
  const { host, failures } = withoutPrograms({ masquerade: true, forwardRules: true })
  await host.start(LOCAL, 'iptables')
  expect(failures()).toMatchObject([
    { level: 'error', message: expect.stringContaining('`iptables` is missing; install it: apt-get install iptables') },
  ])
  expect(host.problem()).toBe('pods are not masqueraded: the program `iptables` is missing')
})

test('it is tried again every resync, and no more after a stop', async () => {
  const { clock, host, failures } = withoutPrograms({ masquerade: true, forwardRules: true })
  await host.start(LOCAL, 'nftables')
  await clock.advance(4999)
  expect(failures()).toHaveLength(1)
  await clock.advance(1)
  await expect.poll(() => failures().length).toBe(2)
  await host.stop('keep')
  await clock.advance(20_000)
  expect(failures()).toHaveLength(2)
})

test('a look that is asked for comes at once, and the next one a whole resync later', async () => {
  const { clock, host, failures } = withoutPrograms({ masquerade: true, forwardRules: true })
  host.lookNow() // before the start there is nothing to look at
  await host.start(LOCAL, 'iptables')
  await clock.advance(3000)
  host.lookNow()
  host.lookNow()
  await expect.poll(() => failures().length).toBe(2)
  await settle()
  await clock.advance(4999)
  expect(failures()).toHaveLength(2)
  await clock.advance(1)
  await expect.poll(() => failures().length).toBe(3)
})

test('without forward rules a node has all it needs, and with nothing to keep it does nothing', async () => {
  const forward = withoutPrograms({ masquerade: false, forwardRules: true })
  await forward.host.start(LOCAL, 'iptables')
  expect(forward.failures()).toMatchObject([{ level: 'warn' }])
  expect(forward.host.problem()).toBeNull()
  const nothing = withoutPrograms({ masquerade: false, forwardRules: false })
  await nothing.host.start(LOCAL, 'iptables')
  await nothing.clock.advance(20_000)
  expect(nothing.failures()).toEqual([])
})
