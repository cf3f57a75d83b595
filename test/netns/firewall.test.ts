// The rules of a node in the form of iptables and of nftables: what is listed, what packets make of them, and how they
// come back when somebody takes them away.
import { readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { mainProgram } from '../../src/lab/daemon-process.ts'
import { hostFiles } from '../../src/lab/lab-state.ts'
import { signal, waitGone } from '../../src/lab/process-identity.ts'
import { filterListing, IPV4, IPV6, natListing, nftListing } from '../support/firewall-listings.ts'
import { printed, trafficTests } from '../support/lab-firewall.ts'
import { killDaemon, labUnderTest, logOf } from '../support/lab-under-test.ts'
import { seenSource } from '../support/seen-source.ts'

const RESYNC_MS = 1000
/** A stop that removes all takes 5 s at most; fails at three times as much. */
const STOPPED_MS = 15_000
/** That they come back is looked at here, not how soon. */
const BACK_MS = 20_000
const MASQ = '-m comment --comment "flanneld masq"'
const OPTIONS = { hosts: 2, pods: 1, kernel: ['host2'], ipv6: true }
const ARGUMENTS = ['--ip-masq', '--iptables-resync=1']

describe('in iptables mode', () => {
  const lab = labUnderTest({ ...OPTIONS, name: 'fwipt', daemonArguments: ARGUMENTS })
  const list = async (program: string, table: string) =>
    (await printed(lab(), 'host1', program, '-t', table, '-S')).trimEnd().split('\n')
  const onHost = (...argv: string[]) => printed(lab(), 'host1', ...argv)
  const nat = natListing(IPV4)
  const filter = filterListing(IPV4)
  const listsNat = (expected: string[]) =>
    expect.poll(() => list('iptables', 'nat'), { timeout: BACK_MS }).toEqual(expected)

  test('the tables of both families list our rules in their order, and nothing else', async () => {
    expect(await list('iptables', 'nat')).toEqual(nat)
    expect(await list('iptables', 'filter')).toEqual(filter)
    expect(await list('ip6tables', 'nat')).toEqual(natListing(IPV6))
    expect(await list('ip6tables', 'filter')).toEqual(filterListing(IPV6))
    expect(await onHost('nft', 'list', 'tables')).not.toContain('flannel')
    expect(readFileSync(hostFiles('fwipt', 'host1').subnetFile, 'utf8')).toContain('\nFLANNEL_IPMASQ=true\n')
  })

  trafficTests(lab)

  test('pods reach each other across a host that forwards nothing else', async () => {
    await onHost('iptables', '-P', 'FORWARD', 'DROP')
    const [one, other] = [lab().endpoint('pod1.1'), lab().endpoint('pod2.1')]
    expect(await seenSource(one, other)).toBe(one.address)
    expect(await seenSource(other, one)).toBe(other.address)
    await onHost('iptables', '-P', 'FORWARD', 'ACCEPT')
  })

  test('while all is right nothing is written', async () => {
    const handles = () => onHost('nft', '-a', '-s', 'list', 'ruleset')
    const before = await handles()
    await pause(1.5 * RESYNC_MS)
    expect(await handles()).toBe(before)
  })

  test('rules that are gone or out of order come back, and those of others stay', async () => {
    const foreign = '-A POSTROUTING -s 203.0.113.0/24 -j ACCEPT'
    await onHost('iptables', '-t', 'nat', '-D', 'FLANNEL-POSTRTG', '2')
    await onHost('iptables', ...`-t nat -I ${foreign.slice(3)}`.split(' '))
    const withForeign = nat.toSpliced(5, 0, foreign)
    await listsNat(withForeign)
    await onHost('iptables', ...'-t nat -I FLANNEL-POSTRTG -s 10.244.0.0/16 -j MASQUERADE'.split(' '))
    await onHost('iptables', ...'-t nat -D POSTROUTING 2'.split(' '))
    await listsNat(withForeign)
    await onHost('iptables', '-t', 'nat', '-F')
    await listsNat(nat)
    await expect.poll(() => logOf(lab(), 'host1').map(({ event }) => event)).toContain('firewall-repaired')
  })

  test('a former version’s rules before our own are removed: pod to pod is not translated', async () => {
    for (const rule of ['-s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE', `-s 10.9.0.0/16 ${MASQ} -j RETURN`]) {
      await onHost('sh', '-c', `iptables -t nat -I POSTROUTING ${rule}; iptables -t nat -I POSTROUTING ${rule}`)
    }
    await listsNat(nat)
    const pod = lab().endpoint('pod1.1')
    expect(await seenSource(pod, lab().endpoint('pod2.1'))).toBe(pod.address)
  })

  test('cleanup takes all that is ours, and nothing of others', async () => {
    const { stateDirectory, subnetFile } = hostFiles('fwipt', 'host1')
    const words = [
      process.execPath,
      mainProgram(),
      'cleanup',
      '--state-dir',
      stateDirectory,
      '--subnet-file',
      subnetFile,
    ]
    const refused = await lab().exec('host1', [...words, '--yes'], { timeoutMs: 60_000 })
    expect(refused.exitCode).toBe(1)
    expect(refused.stderr).toContain(`a daemon (pid ${lab().host('host1').daemonPid}) runs on this host`)
    await killDaemon(lab(), 'host1')
    await onHost('iptables', '-t', 'nat', '-A', 'POSTROUTING', '-s', '203.0.113.0/24', '-j', 'ACCEPT')
    await onHost('ip', 'route', 'add', 'blackhole', '10.77.0.0/24', 'proto', '143')
    const dry = await onHost(...words, '--dry-run')
    expect(dry).toContain('\nip link delete dev flannel.1\n')
    expect(await list('iptables', 'nat')).toHaveLength(nat.length + 1)
    await onHost(...words, '--yes', '--state')
    expect(await list('iptables', 'nat')).toEqual([...nat.slice(0, 4), '-A POSTROUTING -s 203.0.113.0/24 -j ACCEPT'])
    expect(await list('ip6tables', 'nat')).toEqual(nat.slice(0, 4))
    const left = await onHost('ip', 'route', 'show')
    expect(left).toContain('blackhole 10.77.0.0/24 proto 143')
    expect(left).not.toContain('142')
    expect(await onHost('ip', '-br', 'link', 'show')).not.toContain('flannel')
    expect(await onHost('sh', '-c', `ls -A ${stateDirectory} ${subnetFile} 2>/dev/null || echo none`)).toBe('none\n')
    expect((await lab().exec('host1', [...words, '--yes'], { timeoutMs: 60_000 })).stderr).toBe(
      'nothing of flannelette is on this host\n',
    )
  })
})

describe('in nftables mode', () => {
  const more = ['--ip-blackhole-route', '--on-exit=remove']
  const lab = labUnderTest({ ...OPTIONS, name: 'fwnft', nftables: true, daemonArguments: [...ARGUMENTS, ...more] })
  const onHost = (...argv: string[]) => printed(lab(), 'host1', ...argv)
  const table = (handles: boolean) =>
    onHost('nft', ...(handles ? ['-a', '-s'] : []), 'list', 'table', 'ip', 'flannel-ipv4')

  test('the tables of both families list our rules in their order, and iptables lists none', async () => {
    expect(await table(false)).toBe(nftListing('ip', 'flannel-ipv4', IPV4))
    expect(await onHost('nft', 'list', 'table', 'ip6', 'flannel-ipv6')).toBe(nftListing('ip6', 'flannel-ipv6', IPV6))
    expect(await onHost('iptables', '-t', 'nat', '-S')).not.toContain('FLANNEL')
  })

  trafficTests(lab)

  test('rules that are gone come back, other tables stay, and nothing is written while all is right', async () => {
    const right = await table(false)
    await onHost('nft', 'add table ip other { chain kept { counter accept; }; }')
    await onHost('nft', 'flush chain ip flannel-ipv4 forward; insert rule ip flannel-ipv4 postrtg masquerade')
    await expect.poll(() => table(false), { timeout: BACK_MS }).toBe(right)
    const before = await table(true)
    await pause(1.5 * RESYNC_MS)
    expect(await table(true)).toBe(before)
    expect(await onHost('nft', 'list', 'table', 'ip', 'other')).toContain('counter packets 0 bytes 0 accept')
  })

  test('the blackhole route comes back, and a stop with --on-exit=remove takes it and the rules away', async () => {
    const route = 'blackhole 10.244.1.0/24 proto 142'
    expect(await onHost('ip', 'route', 'show')).toContain(route)
    await onHost('ip', 'route', 'delete', 'blackhole', '10.244.1.0/24')
    await expect.poll(() => onHost('ip', 'route', 'show'), { timeout: BACK_MS }).toContain(route)
    const { daemon } = lab().host('host1')
    signal(daemon!, 'SIGTERM')
    expect(await waitGone([daemon!], STOPPED_MS)).toBe(true)
    expect(await onHost('ip', 'route', 'show')).not.toContain('142')
    expect(await onHost('ip', '-6', 'route', 'show')).not.toContain('142')
    expect(await onHost('nft', 'list', 'tables')).not.toContain('flannel')
  })
})
