// Which leases are forwarded to where IPv6 has a tunnel of its own, beside IPv4 or alone, and by which entries.
import { describe, expect, test } from 'vitest'
import { formatAddress, formatMac } from '../../../dataplane/wire/address.ts'
import { formatPrefix } from '../../../dataplane/wire/prefix.ts'
import { forwardingEntries, selectPeers } from '../../../src/daemon/forwarding-entries.ts'
import { type Lease, type LeaseAttributes, nameOf } from '../../../src/lease/lease.ts'
import { ip, ip6 } from '../../support/packets.ts'
import { dualLease, ipv6Lease, POD_NETWORKS, peerLease } from '../../support/peer-lease.ts'

const IPV4_ALONE = peerLease('10.244.5.0/24', '192.0.2.5', '0a:00:00:00:00:05')

function altered(lease: Lease, attributes: Partial<LeaseAttributes>, more: Partial<Lease> = {}): Lease {
  return { ...lease, ...more, attributes: { ...lease.attributes, ...attributes } }
}

function select(own: Lease, ...leases: Lease[]) {
  const { peers, leftOut } = selectPeers(leases, own, POD_NETWORKS)
  return {
    peers: peers.map(({ subnet, ipv6Subnet }) => [subnet && formatPrefix(subnet), ipv6Subnet]),
    leftOut: leftOut.map(({ subnet, reason }) => [subnet, reason]),
  }
}

describe('a node with both tunnels', () => {
  const own = dualLease(1)

  test('forwards to both halves of its peers, and to the one half of others', () => {
    expect(select(own, own, ipv6Lease(7), dualLease(2), IPV4_ALONE)).toEqual({
      peers: [
        ['10.244.2.0/24', 'fd00:10:244:2::/64'],
        ['10.244.5.0/24', null],
        [null, 'fd00:10:244:7::/64'],
      ],
      leftOut: [],
    })
  })

  test.each<[string, Partial<LeaseAttributes>, Partial<Lease>, string]>([
    ['without an IPv6 address', { publicIpv6: null }, {}, 'undecodable-data'],
    ['without a MAC for it', { backendV6Data: { VNI: 1 } }, {}, 'undecodable-data'],
    ['with our own address', { publicIpv6: '2001:db8::1' }, {}, 'own-address'],
    ['with a link-local address', { publicIpv6: 'fe80::2' }, {}, 'address-not-unicast'],
    ['with an address inside a pod subnet', { publicIpv6: 'fd00:10:244:2::7' }, {}, 'address-inside-overlay'],
    ['with an address inside our own', { publicIpv6: 'fd00:10:244:1::7' }, {}, 'address-inside-overlay'],
    ['outside the pod network', {}, { ipv6Subnet: '2001:db8::/64' }, 'outside-network'],
    ['that overlaps our own subnet', {}, { ipv6Subnet: 'fd00:10:244::/60' }, 'overlaps-own-subnet'],
  ])('uses a half %s not, and the other half all the same', (_, attributes, more, reason) => {
    const lease = altered(dualLease(2), attributes, more)
    expect(select(own, lease, dualLease(3))).toEqual({
      peers: [
        ['10.244.2.0/24', null],
        ['10.244.3.0/24', 'fd00:10:244:3::/64'],
      ],
      leftOut: [[lease.ipv6Subnet, reason]],
    })
  })

  test('uses a half not whose address lies elsewhere in a pod network that is led into the tunnel as a whole', () => {
    const lease = altered(dualLease(2), { publicIpv6: 'fd00:10:244:9::7' })
    const { peers, leftOut } = selectPeers([own, lease], own, { ...POD_NETWORKS, isLedWhole: true })
    expect(peers).toEqual([{ ...lease, ipv6Subnet: null }])
    expect(leftOut.map(({ reason, detail }) => [reason, detail])).toEqual([
      ['address-inside-overlay', 'its public IPv6 address lies inside the pod network fd00:10:244::/48'],
    ])
    expect(selectPeers([own, lease], own, POD_NETWORKS).leftOut).toEqual([])
  })

  test('leaves a lease of IPv6 alone out whole when that half will not do', () => {
    expect(select(own, altered(ipv6Lease(2), { publicIpv6: null, publicIp: ip('192.0.2.2') }))).toEqual({
      peers: [],
      leftOut: [['fd00:10:244:2::/64', 'undecodable-data']],
    })
  })

  test('has entries of each family by its own address and MAC', () => {
    const tunnel = { encapsulation: 'vxlan', port: 8472, vni: 1, ipv6Network: null } as const
    const text = (underlayAddress: number | bigint) =>
      forwardingEntries([dualLease(2), IPV4_ALONE, ipv6Lease(7)], { ...tunnel, underlayAddress }).map(
        ({ prefix, vtep }) => `${formatPrefix(prefix)} ${formatAddress(vtep.underlayAddress)} ${formatMac(vtep.mac)}`,
      )
    expect(text(ip('192.0.2.1'))).toEqual([
      '10.244.2.0/24 192.0.2.2 0a:00:00:00:00:02',
      '10.244.5.0/24 192.0.2.5 0a:00:00:00:00:05',
    ])
    expect(text(ip6('2001:db8::1'))).toEqual([
      'fd00:10:244:2::/64 2001:db8::2 0a:06:00:00:00:02',
      'fd00:10:244:7::/64 2001:db8::7 0a:06:00:00:00:07',
    ])
  })
})

describe('a node without IPv4', () => {
  const own = ipv6Lease(1)

  test('takes all nodes for different ones although they have one IPv4 address, none', () => {
    expect(select(own, own, ipv6Lease(2), ipv6Lease(3))).toEqual({
      peers: [
        [null, 'fd00:10:244:2::/64'],
        [null, 'fd00:10:244:3::/64'],
      ],
      leftOut: [],
    })
  })

  test('uses the IPv6 half of a lease with both, and says so of one without', () => {
    expect(select(own, dualLease(2), IPV4_ALONE)).toEqual({
      peers: [[null, 'fd00:10:244:2::/64']],
      leftOut: [['10.244.5.0/24', 'other-family']],
    })
  })

  test('knows its own address in another lease', () => {
    expect(select(own, altered(ipv6Lease(2), { publicIpv6: '2001:db8::1' })).leftOut).toEqual([
      ['fd00:10:244:2::/64', 'own-address'],
    ])
  })

  test('of two leases for one subnet follows the later one, and orders what is left', () => {
    const { peers, leftOut } = selectPeers(
      [altered(ipv6Lease(4), {}, { ipv6Subnet: 'fd00:10:244:3::/64', revision: 9 }), ipv6Lease(3), ipv6Lease(2)],
      own,
      POD_NETWORKS,
    )
    expect(peers.map((peer) => [nameOf(peer), peer.attributes.publicIpv6])).toEqual([
      ['fd00:10:244:2::/64', '2001:db8::2'],
      ['fd00:10:244:3::/64', '2001:db8::4'],
    ])
    expect(leftOut.map(({ reason, detail }) => [reason, detail])).toEqual([
      ['superseded', '2001:db8::4 holds a later lease for this subnet'],
    ])
  })
})

test('a node with IPv4 alone leaves a lease of IPv6 alone out, and keeps the IPv4 half of one with both', () => {
  const own = peerLease('10.244.1.0/24', '192.0.2.1', '0a:00:00:00:00:01')
  expect(select(own, dualLease(2), ipv6Lease(3))).toEqual({
    peers: [['10.244.2.0/24', null]],
    leftOut: [['fd00:10:244:3::/64', 'other-family']],
  })
})
