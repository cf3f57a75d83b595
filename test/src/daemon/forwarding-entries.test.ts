// Which leases are forwarded to, and why the others are not.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseIpv4, parseMac } from '../../../dataplane/wire/address.ts'
import { formatPrefix, overlaps, parseIpv6Prefix } from '../../../dataplane/wire/prefix.ts'
import { forwardingEntries, selectPeers } from '../../../src/daemon/forwarding-entries.ts'
import type { Lease, LeaseAttributes } from '../../../src/lease/lease.ts'
import { POD_NETWORKS, peerLease } from '../../support/peer-lease.ts'

const VXLAN = {
  encapsulation: 'vxlan',
  underlayAddress: 0xc0000201,
  ipv6Network: parseIpv6Prefix('fd00:10:244::/48'),
  port: 8472,
  vni: 1,
} as const
const OWN = peerLease('10.244.1.0/24', '192.0.2.1', '0a:00:00:00:00:01')
const B = peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:02')
const C = peerLease('10.244.3.0/24', '192.0.2.3', '0a:00:00:00:00:03')

function altered(lease: Lease, attributes: Partial<LeaseAttributes>, revision = lease.revision): Lease {
  return { ...lease, revision, attributes: { ...lease.attributes, ...attributes } }
}

function select(...leases: Lease[]) {
  const { peers, leftOut } = selectPeers(leases, OWN, POD_NETWORKS)
  return { peers: peers.map((lease) => formatPrefix(lease.subnet!)), leftOut }
}

describe('selectPeers', () => {
  test('everybody but ourselves, in address order', () => {
    expect(select(C, OWN, B)).toEqual({ peers: ['10.244.2.0/24', '10.244.3.0/24'], leftOut: [] })
  })

  test('a backend of any length and with any character is named in a few', () => {
    const odd = { ...B, attributes: { ...B.attributes, backendType: '\u001b[2J'.repeat(100_000) } }
    const [left] = selectPeers([odd], OWN, POD_NETWORKS).leftOut
    expect(left?.detail).toMatch(/^incompatible: [\x20-\x7e]{40}…$/)
  })

  test.each(['host-gw', 'wireguard', ''])('a lease of backend %j is incompatible, and named so', (backendType) => {
    const { peers, leftOut } = select(altered(B, { backendType }), C)
    expect(peers).toEqual(['10.244.3.0/24'])
    expect(leftOut).toMatchObject([
      { reason: 'incompatible-backend', detail: expect.stringMatching(/^incompatible: ./) },
    ])
    expect(leftOut[0]?.detail).toContain(backendType)
  })

  test.each<[string, Partial<LeaseAttributes>]>([
    ['no data', { backendData: null }],
    ['an empty MAC, as Windows nodes write first', { backendData: { VNI: 4096, VtepMAC: '' } }],
    ['no IPv4 address', { publicIp: 0 }],
  ])('a lease with %s costs only itself', (_, change) => {
    const { peers, leftOut } = select(altered(B, change), C)
    expect(peers).toEqual(['10.244.3.0/24'])
    expect(leftOut).toMatchObject([{ reason: 'undecodable-data' }])
  })

  test.each(['10.244.1.0/24', '10.244.1.128/25', '10.244.0.0/22'])(
    '%s of another node overlaps ours and is left out',
    (subnet) => {
      const { peers, leftOut } = select(OWN, peerLease(subnet, '192.0.2.9', '0a:00:00:00:00:09'))
      expect(peers).toEqual([])
      expect(leftOut).toMatchObject([{ reason: 'overlaps-own-subnet' }])
    },
  )

  test.each(['0.1.2.3', '127.0.0.1', '224.0.0.9', '255.255.255.255'])(
    'a lease with the public address %s, which is no host’s, is left out',
    (address) => {
      const { peers, leftOut } = select(altered(B, { publicIp: parseIpv4(address)! }), C)
      expect(peers).toEqual(['10.244.3.0/24'])
      expect(leftOut).toMatchObject([{ reason: 'address-not-unicast', detail: expect.stringContaining(address) }])
    },
  )

  test('another lease with our own address is left out: we would send to ourselves', () => {
    expect(select(OWN, altered(B, { publicIp: OWN.attributes.publicIp })).leftOut).toMatchObject([
      { reason: 'own-address' },
    ])
  })

  test.each(['10.244.2.7', '10.244.1.7'])(
    'a lease whose address %s is that of a pod is left out: it would loop',
    (address) => {
      const { peers, leftOut } = select(OWN, peerLease('10.244.2.0/24', address, '0a:00:00:00:00:02'))
      expect([peers, leftOut.map((one) => one.reason)]).toEqual([[], ['address-inside-overlay']])
    },
  )

  test('an address elsewhere in the pod network loops where one route leads all of it into the tunnel, else not', () => {
    const lease = peerLease('10.244.2.0/24', '10.244.9.7', '0a:00:00:00:00:02')
    expect(selectPeers([OWN, lease], OWN, POD_NETWORKS).peers).toEqual([lease])
    expect(selectPeers([OWN, lease, C], OWN, { ...POD_NETWORKS, isLedWhole: true })).toMatchObject({
      peers: [C],
      leftOut: [
        {
          reason: 'address-inside-overlay',
          detail: 'its public address lies inside the pod network 10.244.0.0/16',
        },
      ],
    })
  })

  test('of two leases for one subnet the later revision wins, whatever the order', () => {
    const later = altered(B, { publicIp: parseIpv4('192.0.2.7')! }, 9)
    for (const leases of [
      [B, later],
      [later, B],
    ]) {
      const { peers, leftOut } = selectPeers(leases, OWN, POD_NETWORKS)
      expect([peers, leftOut.map((one) => [one.lease, one.reason])]).toEqual([[later], [[B, 'superseded']]])
    }
  })

  test.each(['0.0.0.0/1', '10.245.2.0/24', '192.0.2.128/25', '127.0.0.0/8', '8.8.8.8/31'])(
    '%s is no subnet of the pod network: a route to it would take what is not of pods',
    (subnet) => {
      const { peers, leftOut } = select(OWN, peerLease(subnet, '198.51.100.9', '0a:00:00:00:00:09'), C)
      expect(peers).toEqual(['10.244.3.0/24'])
      expect(leftOut).toMatchObject([
        { reason: 'outside-network', detail: 'it lies outside the pod network 10.244.0.0/16' },
      ])
    },
  )

  test('a smaller subnet inside a larger one stays: the longest prefix decides packet by packet', () => {
    expect(select(B, peerLease('10.244.2.128/25', '192.0.2.3', '0a:00:00:00:00:03')).peers).toHaveLength(2)
  })

  test('every lease is a peer, left out, or our own; no peer overlaps our subnet; order does not matter', () => {
    const lease = fc
      .tuple(fc.integer({ min: 0, max: 5 }), fc.constantFrom(23, 24, 25), fc.integer({ min: 1, max: 3 }), fc.integer())
      .map(([third, length, host, revision]) => {
        return { ...peerLease(`10.244.${third}.0/${length}`, `192.0.2.${host}`, '0a:00:00:00:00:02'), revision }
      })
    fc.assert(
      fc.property(fc.uniqueArray(lease, { selector: (one) => one.revision }), (leases) => {
        const { peers, leftOut } = selectPeers(leases, OWN, POD_NETWORKS)
        const own = leases.filter(
          (one) => one.attributes.publicIp === 0xc0000201 && formatPrefix(one.subnet!) === '10.244.1.0/24',
        )
        expect(peers.length + leftOut.length + own.length).toBe(leases.length)
        expect(peers.some((peer) => overlaps(peer.subnet!, OWN.subnet!))).toBe(false)
        expect(new Set(peers.map((peer) => formatPrefix(peer.subnet!))).size).toBe(peers.length)
        expect(selectPeers([...leases].reverse(), OWN, POD_NETWORKS).peers).toEqual(peers)
      }),
    )
  })
})

test('an entry carries the address and MAC of its lease, and the port and VNI of the network', () => {
  const foreignVni = altered(B, { backendData: { VNI: 77, VtepMAC: '0a-00-00-00-00-02' } })
  expect(forwardingEntries([foreignVni], VXLAN)).toEqual([
    {
      prefix: B.subnet,
      vtep: { underlayAddress: 0xc0000202, port: 8472, mac: parseMac('0a:00:00:00:00:02'), vni: 1 },
    },
  ])
})

describe('plain UDP', () => {
  const plain = (lease: Lease) => ({
    ...lease,
    attributes: { publicIp: lease.attributes.publicIp, publicIpv6: null, backendType: '' },
  })

  test('takes leases without a type, which carry no MAC, and no others', () => {
    const { peers, leftOut } = selectPeers([plain(B), C], plain(OWN), POD_NETWORKS)
    expect(peers).toEqual([plain(B)])
    expect(leftOut.map(({ lease, detail }) => [lease, detail])).toEqual([[C, 'incompatible: vxlan']])
  })

  test('has entries without MAC and VNI', () => {
    expect(forwardingEntries([plain(B)], { ...VXLAN, encapsulation: 'udp', port: 8285, vni: 0 })).toEqual([
      { prefix: B.subnet, vtep: { underlayAddress: 0xc0000202, port: 8285, mac: 0, vni: 0 } },
    ])
  })
})

describe('IPv6 halves', () => {
  const MAC = (host: number) => `0a:00:00:00:00:0${host}`
  const dual = (host: number, half = `fd00:10:244:${host}::/64`) =>
    peerLease(`10.244.${host}.0/24`, `192.0.2.${host}`, MAC(host), half)
  const own = dual(1)
  const halves = (leases: readonly Lease[], self = own) => {
    const { peers, leftOut } = selectPeers(leases, self, POD_NETWORKS)
    return { halves: peers.map(({ ipv6Subnet }) => ipv6Subnet), leftOut }
  }

  test('get a table entry of their own to the same VTEP', () => {
    const { peers } = selectPeers([own, dual(2), C], own, POD_NETWORKS)
    const entries = forwardingEntries(peers, VXLAN)
    expect(entries.map(({ prefix }) => formatPrefix(prefix))).toEqual([
      '10.244.2.0/24',
      'fd00:10:244:2::/64',
      '10.244.3.0/24',
    ])
    expect(entries[1]?.vtep).toEqual(entries[0]?.vtep)
  })

  test('of peers are not asked for by a node without one, silently', () => {
    expect(halves([OWN, dual(2)], OWN)).toEqual({ halves: [null], leftOut: [] })
  })

  test.each(['fd00:10:244:1::/64', 'fd00:10:244:1:8000::/65', 'fd00:10:244::/56'])(
    '%s overlaps ours and is left out; the lease’s IPv4 half stays',
    (half) => {
      const { halves: kept, leftOut } = halves([own, dual(2, half), dual(3)])
      expect(kept).toEqual([null, 'fd00:10:244:3::/64'])
      expect(leftOut).toMatchObject([{ reason: 'overlaps-own-subnet', subnet: half }])
    },
  )

  test.each<[string, unknown]>([
    ['another MAC, as a node with a tunnel over IPv6 has', { VNI: 1, VtepMAC: MAC(7) }],
    ['no data', undefined],
    ['an empty MAC', { VNI: 1, VtepMAC: '' }],
  ])('with %s are left out; the lease’s IPv4 half stays', (_, backendV6Data) => {
    const { halves: kept, leftOut } = halves([own, altered(dual(2), { backendV6Data }), dual(3)])
    expect(kept).toEqual([null, 'fd00:10:244:3::/64'])
    expect(leftOut).toMatchObject([{ reason: 'undecodable-data', subnet: 'fd00:10:244:2::/64' }])
  })

  test('of one subnet go to the later lease, in any order', () => {
    const late = { ...dual(2, 'fd00:10:244:9::/64'), revision: 9 }
    const early = dual(3, 'fd00:10:244:9::/64')
    for (const leases of [
      [late, early],
      [early, late],
    ]) {
      expect(halves([own, ...leases])).toMatchObject({
        halves: ['fd00:10:244:9::/64', null],
        leftOut: [{ reason: 'superseded', lease: early, detail: expect.stringContaining('192.0.2.2') }],
      })
    }
  })
})
