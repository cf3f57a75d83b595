// What becomes of a packet by the rules, as a table.
import { describe, expect, test } from 'vitest'
import { parseIpv4, parseIpv6 } from '../../../../dataplane/wire/address.ts'
import { containsAddress, parseIpv6Prefix, parsePrefix } from '../../../../dataplane/wire/prefix.ts'
import {
  type AddressMatch,
  type FamilyNetworks,
  forwardRules,
  masqueradeRules,
  type RuleSet,
} from '../../../../src/host/firewall/rules.ts'

const IPV4: FamilyNetworks = {
  family: 'ip',
  network: parsePrefix('10.244.0.0/16')!,
  subnet: parsePrefix('10.244.1.0/24')!,
}
const IPV6: FamilyNetworks = {
  family: 'ip6',
  network: parseIpv6Prefix('fd00:10:244::/48')!,
  subnet: parseIpv6Prefix('fd00:10:244:1::/64')!,
}

/** The first rule that fits decides; `pass` where none does. */
function fate({ rules }: RuleSet, source: string, destination: string, marked = false): string {
  const fits = (match: AddressMatch | undefined, address: string) => {
    if (match === undefined) return true
    const prefix = parsePrefix(match.prefix) ?? parseIpv6Prefix(match.prefix)!
    return containsAddress(prefix, parseIpv4(address) ?? parseIpv6(address)!) !== match.not
  }
  const decides = rules.find(
    (rule) => (rule.marked !== true || marked) && fits(rule.source, source) && fits(rule.destination, destination),
  )
  return decides?.verdict ?? 'pass'
}

describe('masquerading', () => {
  test.each([
    ['pod to pod here', '10.244.1.2', '10.244.1.3', 'return'],
    ['pod to pod elsewhere', '10.244.1.2', '10.244.2.2', 'return'],
    ['pod elsewhere to pod here', '10.244.2.2', '10.244.1.2', 'return'],
    ['pod to multicast', '10.244.1.2', '239.1.1.1', 'pass'],
    ['pod to the internet', '10.244.1.2', '198.51.100.1', 'masquerade'],
    ['pod to the network of nodes', '10.244.1.2', '192.0.2.2', 'masquerade'],
    ['this host, by its overlay address, to a pod elsewhere', '10.244.1.0', '10.244.2.2', 'return'],
    ['this host, by another address, to a pod elsewhere', '192.0.2.1', '10.244.2.2', 'masquerade'],
    ['outside to pod here', '198.51.100.1', '10.244.1.2', 'return'],
    ['outside across this host to pod elsewhere', '198.51.100.1', '10.244.2.2', 'masquerade'],
    ['node to node, as the tunnel goes', '192.0.2.1', '192.0.2.2', 'pass'],
  ])('%s', (_, source, destination, verdict) => {
    expect(fate(masqueradeRules(IPV4), source, destination)).toBe(verdict)
  })

  test.each([
    ['pod to pod elsewhere', 'fd00:10:244:1::2', 'fd00:10:244:2::2', 'return'],
    ['pod to multicast', 'fd00:10:244:1::2', 'ff05::2', 'pass'],
    ['pod to the internet', 'fd00:10:244:1::2', '2001:db8::1', 'masquerade'],
    ['outside to pod here', '2001:db8::1', 'fd00:10:244:1::2', 'return'],
    ['outside across this host to pod elsewhere', '2001:db8::1', 'fd00:10:244:2::2', 'masquerade'],
  ])('IPv6: %s', (_, source, destination, verdict) => {
    expect(fate(masqueradeRules(IPV6), source, destination)).toBe(verdict)
  })

  test('pods keep their addresses to what is excluded, and nobody else does', () => {
    const excluded = [parsePrefix('192.0.2.0/24')!, parseIpv6Prefix('fd00:56::/64')!]
    const [ipv4, ipv6] = [masqueradeRules(IPV4, excluded), masqueradeRules(IPV6, excluded)]
    expect(fate(ipv4, '10.244.1.2', '192.0.2.2')).toBe('return')
    expect(fate(ipv4, '10.244.1.2', '198.51.100.1')).toBe('masquerade')
    expect(fate(ipv4, '192.0.2.1', '10.244.2.2')).toBe('masquerade')
    expect(fate(ipv6, 'fd00:10:244:1::2', 'fd00:56::2')).toBe('return')
    expect(fate(ipv6, 'fd00:10:244:1::2', '2001:db8::1')).toBe('masquerade')
    expect([ipv4, ipv6].map(({ rules }) => rules.length)).toEqual([7, 7])
  })

  test('what a service proxy marked is left to it', () => {
    expect(fate(masqueradeRules(IPV4), '10.244.1.2', '198.51.100.1', true)).toBe('return')
  })
})

test('packets of pods and to pods are accepted, others are left to the policy', () => {
  const rules = forwardRules(IPV4)
  expect(fate(rules, '10.244.2.2', '198.51.100.1')).toBe('accept')
  expect(fate(rules, '198.51.100.1', '10.244.1.2')).toBe('accept')
  expect(fate(rules, '198.51.100.1', '192.0.2.1')).toBe('pass')
})
