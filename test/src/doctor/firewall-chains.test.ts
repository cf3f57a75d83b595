// Firewall listings as doctor reads them: which packets chains let pass, and which they drop.
import { describe, expect, test } from 'vitest'
import { parseIpv6Prefix, parsePrefix } from '../../../dataplane/index.ts'
import { admitsPort, chainsOfIptables, chainsOfNft, dropsPort, forwards } from '../../../src/doctor/firewall-chains.ts'

const NETWORK = parsePrefix('10.244.0.0/16')!
const DEVICES = ['flannel.1', 'cni0']

describe('iptables', () => {
  const forward = (...rules: string[]) => {
    const chains = chainsOfIptables(['-P INPUT ACCEPT', '-P FORWARD DROP', ...rules].join('\n'))
    return chains.filter(({ hook }) => hook === 'forward').every((chain) => forwards(chain, NETWORK, DEVICES))
  }

  test.each([
    ['the network', ['-A FORWARD -s 10.244.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT']],
    ['a larger one', ['-A FORWARD -s 10.0.0.0/8 -j ACCEPT']],
    ['a device', ['-A FORWARD -i cni0 -j ACCEPT']],
    ['everything', ['-A FORWARD -j ACCEPT']],
    ["flannel's own chain", ['-A FORWARD -j FLANNEL-FWD', '-A FLANNEL-FWD -s 10.244.0.0/16 -j ACCEPT']],
  ])('lets %s pass', (_, rules) => {
    expect(forward(...rules)).toBe(true)
  })

  test.each([
    ['nothing', []],
    ['established ones', ['-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT']],
    ['another network', ['-A FORWARD -s 10.245.0.0/16 -j ACCEPT']],
    ['another device', ['-A FORWARD -i cni01 -j ACCEPT']],
    ['a rule that drops', ['-A FORWARD -s 10.244.0.0/16 -j DROP']],
    ['a chain that is empty', ['-N FLANNEL-FWD', '-A FORWARD -j FLANNEL-FWD']],
  ])('does not count: %s', (_, rules) => {
    expect(forward(...rules)).toBe(false)
  })
})

describe('a port is dropped', () => {
  const PEERS = ['192.0.2.2', '192.0.2.3']
  const dropped = (...rules: string[]) => {
    const chains = chainsOfIptables(['-P INPUT ACCEPT', '-P OUTPUT ACCEPT', ...rules].join('\n'))
    return chains.filter((chain) => dropsPort(chain, 8472, PEERS)).map(({ name }) => name)
  }
  const DROP = '-A INPUT -p udp -m udp --dport 8472 -j DROP'

  test('by a rule that names it, in either direction, or names a peer', () => {
    expect(dropped(DROP)).toEqual(['iptables INPUT'])
    expect(dropped('-A OUTPUT -p udp -m udp --dport 8472 -j REJECT')).toEqual(['iptables OUTPUT'])
    expect(dropped('-A INPUT -s 192.0.2.3/32 -j DROP')).toEqual(['iptables INPUT'])
  })

  test('not when peers are accepted or spared before, or something else is meant', () => {
    expect(dropped('-A INPUT -s 192.0.2.0/24 -p udp -m udp --dport 8472 -j ACCEPT', DROP)).toEqual([])
    expect(dropped('-A INPUT ! -s 192.0.2.0/24 -p udp -m udp --dport 8472 -j DROP')).toEqual([])
    expect(dropped('-A INPUT -m set ! --match-set nodes src -p udp --dport 8472 -j DROP')).toEqual([])
    expect(dropped('-A INPUT -s 192.0.2.3/32 -p tcp --dport 22 -j DROP')).toEqual([])
    expect(dropped('-A INPUT -p udp -m udp --dport 4789 -j DROP')).toEqual([])
  })
})

describe('nftables', () => {
  const accept = { accept: null }
  const from = (addr: string, len: number) => ({
    match: { op: '==', left: { payload: { protocol: 'ip', field: 'saddr' } }, right: { prefix: { addr, len } } },
  })
  const place = { family: 'inet', table: 'filter' }
  const chain = (hook: string, policy: string, more = {}) => ({
    chain: { ...place, name: hook, type: 'filter', hook, policy, ...more },
  })
  const rule = (name: string, ...expr: object[]) => ({ rule: { ...place, chain: name, expr } })
  const read = (...items: object[]) => chainsOfNft(JSON.stringify({ nftables: items }), 'iptables', true)

  test('lets a network pass by its prefix, by a jump, or with a counter and no condition', () => {
    const all = [
      [rule('forward', from('10.244.0.0', 16), accept)],
      [rule('forward', { jump: { target: 'pods' } }), rule('pods', from('10.0.0.0', 8), accept)],
      [rule('forward', { counter: { packets: 1, bytes: 2 } }, accept)],
    ]
    for (const rules of all) {
      const [one] = read(chain('forward', 'drop'), ...rules)
      expect(forwards(one!, NETWORK, DEVICES)).toBe(true)
    }
    const [none] = read(chain('forward', 'drop'), rule('forward', from('10.244.0.0', 24), accept))
    expect(forwards(none!, NETWORK, DEVICES)).toBe(false)
    expect(none!.name).toBe('nft inet filter forward')
  })

  test('finds a port that is let in', () => {
    const port = { match: { op: '==', left: { payload: { protocol: 'udp', field: 'dport' } }, right: 8472 } }
    const [open] = read(chain('input', 'drop'), rule('input', port, accept))
    expect([8472, 847, 4789].map((number) => admitsPort(open!, number))).toEqual([true, false, false])
  })

  test('finds a port that is dropped, wherever packets pass', () => {
    const port = { match: { op: '==', left: { payload: { protocol: 'udp', field: 'dport' } }, right: 8472 } }
    const chains = read(chain('prerouting', 'accept'), rule('prerouting', port, { drop: null }))
    expect(chains.map((one) => dropsPort(one, 8472, []))).toEqual([true])
    expect(chains.map((one) => dropsPort(one, 4789, []))).toEqual([false])
  })

  test('tells families apart: chains of one, of the other, and of both', () => {
    const all = ['ip', 'ip6', 'inet', 'bridge', 'netdev'].map((family) =>
      chain('input', 'drop', { family, table: 'own' }),
    )
    const namesOf = (program: 'iptables' | 'ip6tables') =>
      chainsOfNft(JSON.stringify({ nftables: all }), program, true).map(({ name }) => name)
    expect(namesOf('iptables')).toEqual(['nft ip own input', 'nft inet own input'])
    expect(namesOf('ip6tables')).toEqual(['nft ip6 own input', 'nft inet own input'])
  })

  test('reads networks of IPv6', () => {
    const right = { prefix: { addr: 'fd00:10:244::', len: 48 } }
    const match = { op: '==', left: { payload: { protocol: 'ip6', field: 'saddr' } }, right }
    const [one] = read(chain('forward', 'drop'), rule('forward', { match }, accept))
    const passes = (network: string) => forwards(one!, parseIpv6Prefix(network)!, DEVICES)
    expect([passes('fd00:10:244::/48'), passes('fd00:10:244:1::/64'), passes('fd00:10::/32')]).toEqual([
      true,
      true,
      false,
    ])
    expect(forwards(one!, NETWORK, DEVICES)).toBe(false)
  })

  test('leaves to iptables what is its own, and bridges alone', () => {
    const own = chain('forward', 'drop', { family: 'ip', table: 'filter' })
    expect(read(own, chain('forward', 'drop', { family: 'bridge' }))).toEqual([])
    expect(chainsOfNft(JSON.stringify({ nftables: [own] }), 'iptables', false)).toHaveLength(1)
  })
})
