// Both variants of iptables and of ip6tables, in a namespace of the test's own.
import { execFileSync } from 'node:child_process'
import { describe, expect, test } from 'vitest'
import { parseIpv6Prefix, parsePrefix } from '../../dataplane/wire/prefix.ts'
import { Iptables } from '../../src/host/firewall/iptables.ts'
import { FirewallKeeper, firewallRemovals } from '../../src/host/firewall/keeper.ts'
import { forwardRules, masqueradeRules } from '../../src/host/firewall/rules.ts'
import { holdFileLock } from '../../src/store/file-lock.ts'
import { filterListing, IPV4, IPV6, natListing } from '../support/firewall-listings.ts'
import { ownNamespace } from '../support/own-namespace.ts'

const NETWORKS = {
  ip: { family: 'ip', network: parsePrefix(IPV4.network)!, subnet: parsePrefix(IPV4.subnet)! },
  ip6: { family: 'ip6', network: parseIpv6Prefix(IPV6.network)!, subnet: parseIpv6Prefix(IPV6.subnet)! },
} as const
/** Whoever changes rules by the legacy variant holds this meanwhile. */
const LOCK = '/run/xtables.lock'

function list(namespace: string, program: string, table: string): string[] {
  const argv = ['netns', 'exec', namespace, program, '-t', table, '-S']
  return execFileSync('ip', argv, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
    .trimEnd()
    .split('\n')
}

describe.each(['-nft', '-legacy'] as const)('iptables%s', (alternative) => {
  test.each(['ip', 'ip6'] as const)('writes the rules of family %s once, and takes away no others', async (family) => {
    const namespace = ownNamespace()
    const program = `${family}tables${alternative}`
    const expected = family === 'ip' ? IPV4 : IPV6
    const wanted = [masqueradeRules(NETWORKS[family]), forwardRules(NETWORKS[family])]
    const iptables = new Iptables(family, { randomFully: true, alternative }, { namespace })
    expect(await iptables.sync(wanted)).toHaveLength(4)
    expect(list(namespace, program, 'nat')).toEqual(natListing(expected))
    expect(list(namespace, program, 'filter')).toEqual(filterListing(expected))
    expect(await iptables.sync(wanted)).toEqual([])
    execFileSync('ip', ['netns', 'exec', namespace, program, '-A', 'FORWARD', '-j', 'ACCEPT'])
    for (const { argv, input } of await iptables.removal()) {
      execFileSync('ip', ['netns', 'exec', namespace, ...argv], { input: input ?? '' })
    }
    expect(list(namespace, program, 'nat')).toEqual(natListing(expected).slice(0, 4))
    expect(list(namespace, program, 'filter')).toEqual([...filterListing(expected).slice(0, 3), '-A FORWARD -j ACCEPT'])
    expect(await iptables.removal()).toEqual([])
  })
})

test.each(['iptables', 'nftables'] as const)('exceptions from masquerading stand in place with %s', async (mode) => {
  const namespace = ownNamespace()
  const unmasqueraded = [
    parsePrefix('192.0.2.0/24')!,
    parsePrefix('198.51.100.7/32')!,
    parseIpv6Prefix('fd00:56::/64')!,
  ]
  const networks = [NETWORKS.ip, NETWORKS.ip6]
  const wishes = { networks, mode, masquerade: true, unmasqueraded, forward: false, randomFully: true }
  const keeper = new FirewallKeeper(wishes, { namespace })
  expect((await keeper.sync()).failures).toEqual([])
  expect(await keeper.sync()).toEqual({ repaired: [], failures: [] })
  const command = mode === 'iptables' ? ['iptables', '-t', 'nat', '-S', 'FLANNEL-POSTRTG'] : ['nft', 'list', 'ruleset']
  const listing = execFileSync('ip', ['netns', 'exec', namespace, ...command], { encoding: 'utf8' })
  expect(listing).toMatch(
    /192\.0\.2\.0\/24[^\n]*return[^\n]*\n[^\n]*198\.51\.100\.7[^\n]*return[^\n]*\n[^\n]*masquerade/i,
  )
  // Nor is it written again by the next daemon.
  if (mode === 'iptables') expect((await new FirewallKeeper(wishes, { namespace }).sync()).repaired).toEqual([])
})

test('rules of the variant that is not in use any more are found and removed; a look makes no tables', async () => {
  const namespace = ownNamespace()
  const legacyTables = () =>
    execFileSync('ip', ['netns', 'exec', namespace, 'cat', '/proc/net/ip_tables_names'], { encoding: 'utf8' })
  const wishes = { networks: [NETWORKS.ip], masquerade: true, forward: true, randomFully: true }
  const keeper = new FirewallKeeper({ ...wishes, mode: 'nftables' }, { namespace })
  const legacy = new Iptables('ip', { alternative: '-legacy' }, { namespace })
  await keeper.removeOthers()
  expect([await legacy.translations(), legacyTables()]).toEqual([[], ''])
  await legacy.sync([masqueradeRules(NETWORKS.ip)])
  expect(await legacy.translations()).toEqual([natListing(IPV4)[5]])
  await new Iptables('ip', { alternative: '-nft' }, { namespace }).sync([forwardRules(NETWORKS.ip)])
  expect(await keeper.removeOthers()).toHaveLength(2)
  expect(list(namespace, 'iptables-legacy', 'nat')).toEqual(natListing(IPV4).slice(0, 4))
  expect(list(namespace, 'iptables-nft', 'filter')).toEqual(filterListing(IPV4).slice(0, 3))
})

test.each(['iptables', 'nftables'] as const)(
  'two seats keep their rules apart with %s, and a third is tidied away',
  async (mode) => {
    const namespace = ownNamespace()
    const wishes = { networks: [NETWORKS.ip], masquerade: true, forward: true, randomFully: true, mode }
    const keepers = [1, 2, 3].map((seat) => new FirewallKeeper({ ...wishes, seat }, { namespace }))
    for (const keeper of keepers) await keeper.sync()
    const seats = () => {
      const command = mode === 'iptables' ? ['iptables-save'] : ['nft', 'list', 'tables']
      const text = execFileSync('ip', ['netns', 'exec', namespace, ...command], { encoding: 'utf8' })
      const names = text.matchAll(mode === 'iptables' ? /^:FLANNEL-FWD(\S*)/gm : /flannel-ipv4(\S*)$/gm)
      return [...names].map(([, seat]) => seat).sort()
    }
    expect(seats()).toEqual(['', '-2', '-3'])
    for (const keeper of keepers) expect(await keeper.sync()).toEqual({ repaired: [], failures: [] })
    await keepers[0]!.removeOthers(new Set([2]))
    expect(seats()).toEqual(['', '-2'])
    await keepers[0]!.remove()
    expect(seats()).toEqual(['-2'])
    expect(await keepers[1]!.sync()).toEqual({ repaired: [], failures: [] })
    for (const { argv, input } of await firewallRemovals({ namespace }, new Set([2])))
      throw new Error(`${argv} ${input}`)
    expect(await firewallRemovals({ namespace })).not.toEqual([])
  },
)

test('whoever else is changing rules is waited for', async () => {
  const namespace = ownNamespace()
  // Other tests of the run have it now and then.
  const release = await holdFileLock(LOCK, 30_000)
  expect(release).not.toBeNull()
  let done = false
  const writing = new Iptables('ip', { alternative: '-legacy' }, { namespace })
    .sync([forwardRules(NETWORKS.ip)])
    .then(() => {
      done = true
    })
  await new Promise((resolve) => setTimeout(resolve, 300))
  expect(done).toBe(false)
  release?.()
  await writing
  expect(list(namespace, 'iptables-legacy', 'filter')).toEqual(filterListing(IPV4))
})
