// The extension's commands as the daemon runs them: when, with which variables, and what becomes of a failure.
import { describe, expect, test } from 'vitest'
import { parseIpv4, parseIpv6 } from '../../../dataplane/wire/address.ts'
import { parseIpv6Prefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import type { ExtensionCommands } from '../../../src/config/extension-commands.ts'
import { parseNetworkConfig } from '../../../src/config/network-config.ts'
import { ChosenDataplane } from '../../../src/daemon/chosen-dataplane.ts'
import { ExtensionDataplane } from '../../../src/daemon/extension-dataplane.ts'
import { ToldPeers } from '../../../src/daemon/told-peers.ts'
import type { CommandEnd, CommandRun, ConfiguredCommand } from '../../../src/host/configured-command.ts'
import type { LocalVtep } from '../../../src/host/dataplane.ts'
import type { Lease } from '../../../src/lease/lease.ts'
import { CONFIG, ETH0, makeHost, started } from '../../support/agent-host.ts'
import { FakeDataplane } from '../../support/fake-dataplane.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'
import { settle, VirtualClock } from '../../support/virtual-clock.ts'

const COMMANDS: ExtensionCommands = {
  preStartup: 'pre',
  postStartup: 'post',
  subnetAdd: 'add',
  subnetRemove: 'remove',
  shell: false,
}
const LOCAL: LocalVtep = {
  encapsulation: 'none',
  deviceName: '',
  vni: 0,
  port: 0,
  underlayInterface: 'eth0',
  underlayAddress: ETH0.address,
  network: parsePrefix('10.5.0.0/16')!,
  ipv6Network: parseIpv6Prefix('fd00:5::/48')!,
  mtuBytes: 1500,
  mac: 0,
  overlayAddress: parseIpv4('10.5.1.0')!,
  subnet: parsePrefix('10.5.1.0/24')!,
  ipv6Subnet: { address: parseIpv6('fd00:5:0:1::')!, length: 64 },
}
const OK: CommandEnd = { output: '', failure: null }

/** Runs nothing: each command is remembered, and ends as `ends` says. With a directory peers are, too. */
function scripted(
  commands: Partial<ExtensionCommands> = {},
  ends: Record<string, CommandEnd> = {},
  directory: string | null = null,
) {
  const runs: (ConfiguredCommand & CommandRun)[] = []
  const log = new RecordingLog()
  const clock = new VirtualClock()
  const run = async (command: ConfiguredCommand, how: CommandRun) => {
    runs.push({ ...command, ...how })
    return ends[command.text] ?? OK
  }
  const environment = { PATH: '/bin' }
  const told = directory === null ? {} : { told: new ToldPeers(directory, log) }
  const parts = { commands: { ...COMMANDS, ...commands }, log, environment, clock, run, ...told }
  const dataplane = new ExtensionDataplane(parts)
  return { dataplane, runs, log, clock, ends }
}

function extensionLease(subnet: string, publicIp: string, data?: unknown): Lease {
  const { attributes, ...rest } = peerLease(subnet, publicIp, '02:00:00:00:00:02')
  const { backendData: _, ...others } = attributes
  return {
    ...rest,
    attributes: { ...others, backendType: 'extension', ...(data === undefined ? {} : { backendData: data }) },
  }
}

test('what the command before the lease says is for the lease, and never in the log', async () => {
  const { dataplane, runs, log } = scripted({}, { pre: { output: 'line 1\nkey 2', failure: null } })
  await dataplane.prepare()
  expect(dataplane.leaseData()).toBe('line 1\nkey 2')
  expect(runs).toMatchObject([{ text: 'pre', input: '\n', variables: {} }])
  expect(JSON.stringify(log.lines)).not.toContain('key 2')
})

test('data that is cut off is given to nobody', async () => {
  const { dataplane } = scripted({}, { pre: { output: 'half a ke', failure: null, isCut: true } })
  await expect(dataplane.prepare()).rejects.toMatchObject({
    code: 'host-command',
    message: 'Backend.PreStartupCommand says more than 64 KiB',
  })
  expect(dataplane.leaseData()).toBeUndefined()
})

test('without that command there is no data', async () => {
  const { dataplane, runs } = scripted({ preStartup: null })
  await dataplane.prepare()
  expect([dataplane.leaseData(), runs]).toEqual([undefined, []])
})

test('the command behind the lease knows networks, subnets and addresses', async () => {
  const { dataplane, runs } = scripted()
  await dataplane.start(LOCAL)
  expect(runs).toMatchObject([
    {
      text: 'post',
      input: '\n',
      variables: {
        NETWORK: '10.5.0.0/16',
        SUBNET: '10.5.1.0/24',
        IPV6SUBNET: 'fd00:5:0:1::/64',
        PUBLIC_IP: '192.0.2.1',
        PUBLIC_IPV6: '',
      },
    },
  ])
})

test.each(['pre', 'post'])(
  'a start-up command that fails (%s) fails the start, in one line without secrets',
  async (which) => {
    const { dataplane } = scripted({}, { [which]: { output: 'no\npassword=hunter2', failure: 'exit code 3' } })
    const start = async () => {
      await dataplane.prepare()
      await dataplane.start(LOCAL)
    }
    const error = await start().catch((reason: unknown) => reason)
    expect(error).toMatchObject({ code: 'host-command', exitCode: 1 })
    const { message } = error as Error
    expect(message).toMatch(/^Backend\.(Pre|Post)StartupCommand failed \(exit code 3\): no \/ password=/)
    expect(message).not.toContain('hunter2')
  },
)

test('peers come with subnets and addresses of both families, and their data on standard input', async () => {
  const { dataplane, runs } = scripted()
  const lease = extensionLease('10.5.2.0/24', '192.0.2.2', 'a key')
  const dual = {
    ...lease,
    ipv6Subnet: 'fd00:5:0:2::/64',
    attributes: { ...lease.attributes, publicIpv6: '2001:db8::2' },
  }
  await dataplane.replacePeers([dual], 'first leases')
  await settle()
  await dataplane.replacePeers([], 'lease change')
  await settle()
  const variables = {
    SUBNET: '10.5.2.0/24',
    IPV6SUBNET: 'fd00:5:0:2::/64',
    PUBLIC_IP: '192.0.2.2',
    PUBLIC_IPV6: '2001:db8::2',
  }
  expect(runs).toMatchObject([
    { text: 'add', variables, input: 'a key\n' },
    { text: 'remove', variables, input: 'a key\n' },
  ])
})

test('a renewal runs nothing; other data is a removal and an addition', async () => {
  const { dataplane, runs } = scripted()
  const lease = extensionLease('10.5.2.0/24', '192.0.2.2', 'a')
  await dataplane.replacePeers([lease], 'first leases')
  await settle()
  await dataplane.replacePeers([{ ...lease, revision: 9, expiresAtMs: 1 }], 'lease change')
  await settle()
  expect(runs).toHaveLength(1)
  await dataplane.replacePeers([extensionLease('10.5.2.0/24', '192.0.2.2', 'b')], 'lease change')
  await settle()
  expect(runs.map(({ text, input }) => `${text} ${input.trim()}`)).toEqual(['add a', 'remove a', 'add b'])
})

test('a peer whose command fails is pending, told of without secrets, and tried again', async () => {
  const { dataplane, log, clock, ends } = scripted({}, { add: { output: 'token: s3cret', failure: 'exit code 2' } })
  await dataplane.replacePeers([extensionLease('10.5.2.0/24', '192.0.2.2')], 'first leases')
  await settle()
  const pending = [...dataplane.pendingSubnets()]
  expect(pending).toEqual([['10.5.2.0/24', expect.stringMatching(/^SubnetAddCommand failed: exit code 2: /)]])
  const [line] = log.of('peer-pending')
  expect(line?.message).toMatch(/^SubnetAddCommand for 10\.5\.2\.0\/24 failed, it is tried again: exit code 2: token: /)
  expect(JSON.stringify([log.lines, pending])).not.toContain('s3cret')
  await clock.advance(500)
  await settle()
  expect(dataplane.pendingSubnets().get('10.5.2.0/24')).toMatch(/^SubnetAddCommand failed 2 times: exit code 2: /)
  ends.add = OK
  await clock.advance(1000)
  await settle()
  expect(dataplane.pendingSubnets().size).toBe(0)
  expect(log.of('peer-programmed')).toHaveLength(1)
})

test('a peer whose command runs is pending with both of its subnets', async () => {
  const { dataplane } = scripted({}, {}, null)
  const dual = { ...extensionLease('10.5.2.0/24', '192.0.2.2'), ipv6Subnet: 'fd00:5:0:2::/64' }
  void dataplane.replacePeers([dual], 'first leases')
  const why = 'SubnetAddCommand has not ended yet'
  expect(Object.fromEntries(dataplane.pendingSubnets())).toEqual({ '10.5.2.0/24': why, 'fd00:5:0:2::/64': why })
  await settle()
  expect(dataplane.pendingSubnets().size).toBe(0)
})

test('leaving for good removes the peers; a plain stop leaves them', async () => {
  for (const [mode, expected] of [
    ['remove', ['add', 'remove']],
    ['keep', ['add']],
  ] as const) {
    const { dataplane, runs } = scripted()
    await dataplane.replacePeers([extensionLease('10.5.2.0/24', '192.0.2.2')], 'first leases')
    await settle()
    await dataplane.stop(mode)
    expect(runs.map(({ text }) => text)).toEqual(expected)
  }
})

describe('peers of the last run', () => {
  const PEERS = [2, 3, 4].map((n) => extensionLease(`10.5.${n}.0/24`, `192.0.2.${n}`, `key ${n}`))

  /** A run on this state directory: what it runs for peers, with what they are told on standard input. */
  async function runWith(directory: string, peers: readonly Lease[], ends: Record<string, CommandEnd> = {}) {
    const node = scripted({ postStartup: null }, ends, directory)
    await node.dataplane.start(LOCAL)
    await node.dataplane.replacePeers(peers, 'first leases')
    await settle()
    const ran = () => node.runs.map(({ text, input }) => `${text} ${input.trim()}`).sort()
    return { ...node, ran }
  }

  test('that left while no daemon ran are removed once, with what they had said; the others are added as ever', async () => {
    const directory = temporaryDirectory()
    const first = await runWith(directory, PEERS)
    await first.dataplane.stop('keep')
    const changed = extensionLease('10.5.3.0/24', '192.0.2.3', 'new key')
    const second = await runWith(directory, [PEERS[0]!, changed])
    expect(second.ran()).toEqual(['add key 2', 'add new key', 'remove key 3', 'remove key 4'])
    const { variables } = second.runs.find(({ input }) => input === 'key 4\n')!
    expect(variables).toMatchObject({ SUBNET: '10.5.4.0/24', PUBLIC_IP: '192.0.2.4' })
    await second.dataplane.stop('keep')
    const third = await runWith(directory, [PEERS[0]!, changed])
    expect([third.ran(), third.log.of('state-unreadable')]).toEqual([['add key 2', 'add new key'], []])
  })

  test('that a killed run was adding are known, too', async () => {
    const directory = temporaryDirectory()
    const first = scripted({ postStartup: null }, {}, directory)
    first.ends.add = { output: '', failure: 'killed' }
    await first.dataplane.replacePeers(PEERS, 'first leases')
    await settle()
    expect((await runWith(directory, [])).ran()).toEqual(['remove key 2', 'remove key 3', 'remove key 4'])
  })

  test('whose removal fails are tried four times in a run, and not by the next one', async () => {
    const directory = temporaryDirectory()
    await (await runWith(directory, PEERS.slice(0, 1))).dataplane.stop('keep')
    const second = await runWith(directory, [], { remove: { output: 'no such route', failure: 'exit code 2' } })
    await second.clock.advance(120_000)
    expect(second.ran()).toEqual(Array(4).fill('remove key 2'))
    expect(second.log.of('peer-pending').at(-1)?.message).toContain('given up')
    await second.dataplane.stop('keep')
    expect((await runWith(directory, [])).ran()).toEqual([])
  })

  test('are forgotten when a run has removed all at its end', async () => {
    const directory = temporaryDirectory()
    await (await runWith(directory, PEERS)).dataplane.stop('remove')
    expect((await runWith(directory, [])).ran()).toEqual([])
  })
})

test('the lease of a node has the data as a JSON string, type extension, and the interface’s MTU in subnet.env', async () => {
  const host = makeHost(
    JSON.stringify({ Network: '10.5.0.0/16', Backend: { Type: 'extension', PreStartupCommand: 'pre' } }),
  )
  const { dataplane } = scripted({ postStartup: null }, { pre: { output: 'my key', failure: null } })
  const chosen = new ChosenDataplane(new FakeDataplane(), ({ plain }) => (plain === undefined ? null : dataplane))
  const { agent } = await started(host, { dataplane: chosen })
  expect(agent.manager?.lease.attributes).toEqual({
    publicIp: ETH0.address,
    publicIpv6: null,
    backendType: 'extension',
    backendData: 'my key',
  })
  expect(host.env()).toContain('FLANNEL_MTU=1500')
  expect(chosen.kind).toBe('commands')
})

test('a node of both families has the data in both halves of its lease, and tells commands of both addresses', async () => {
  const Backend = { Type: 'extension', PreStartupCommand: 'pre', PostStartupCommand: 'post' }
  const host = makeHost(
    JSON.stringify({ Network: '10.5.0.0/16', EnableIPv6: true, IPv6Network: 'fd00:5::/48', Backend }),
  )
  const { dataplane, runs } = scripted({}, { pre: { output: 'my key', failure: null } })
  const chosen = new ChosenDataplane(new FakeDataplane(), () => dataplane)
  const both = { ...ETH0, ipv6Address: parseIpv6('2001:db8::1')! }
  const { agent } = await started(host, { dataplane: chosen, selectUnderlay: async () => both })
  expect(agent.manager?.lease.attributes).toMatchObject({
    publicIpv6: '2001:db8::1',
    backendData: 'my key',
    backendV6Data: 'my key',
  })
  const post = runs.find(({ text }) => text === 'post')
  expect(post?.variables).toMatchObject({ PUBLIC_IP: '192.0.2.1', PUBLIC_IPV6: '2001:db8::1' })
  expect(post?.variables.IPV6SUBNET).toMatch(/^fd00:5:.*\/64$/)
})

test('a tunnel’s config leaves the dataplane that was asked for', async () => {
  expect(parseNetworkConfig(CONFIG).backendType).toBe('vxlan')
  const usual = new FakeDataplane()
  const chosen = new ChosenDataplane(usual, ({ plain }) => (plain === undefined ? null : new FakeDataplane()))
  const { agent } = await started(makeHost(), { dataplane: chosen })
  expect(usual.local).toEqual(agent.local)
  expect(chosen.leaseData()).toBeUndefined()
})
