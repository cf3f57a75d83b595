// Leases of peers as tests want them: short to write, flannel's form inside.
import { parseIpv4 } from '../../dataplane/wire/address.ts'
import { parseIpv6Prefix, parsePrefix } from '../../dataplane/wire/prefix.ts'
import type { Lease } from '../../src/lease/lease.ts'

/** The pod networks of all leases here. */
export const POD_NETWORKS = {
  network: parsePrefix('10.244.0.0/16'),
  ipv6Network: parseIpv6Prefix('fd00:10:244::/48'),
}

/**
 * A vxlan lease: `peerLease('10.244.2.0/24', '192.168.56.12', '02:00:00:00:00:02')`, dual-stack with an
 * IPv6 subnet behind it.
 */
export function peerLease(subnet: string, publicIp: string, mac: string, ipv6Subnet: string | null = null): Lease {
  const prefix = parsePrefix(subnet)
  const address = parseIpv4(publicIp)
  if (prefix === null || address === null) throw new Error(`no lease: ${subnet} ${publicIp}`)
  return {
    subnet: prefix,
    ipv6Subnet,
    attributes: {
      publicIp: address,
      publicIpv6: null,
      backendType: 'vxlan',
      backendData: { VNI: 1, VtepMAC: mac },
      ...(ipv6Subnet === null ? {} : { backendV6Data: { VNI: 1, VtepMAC: mac } }),
    },
    expiresAtMs: null,
    revision: 1,
  }
}

const IPV6_MAC = (host: number) => `0a:06:00:00:00:0${host}`

/** A vxlan lease of node 1 to 9 whose IPv6 has a tunnel of its own, with a MAC of its own. */
export function dualLease(host: number): Lease {
  const lease = peerLease(`10.244.${host}.0/24`, `192.0.2.${host}`, `0a:00:00:00:00:0${host}`, ipv6SubnetOf(host))
  const { subnet, ipv6Subnet, attributes, ...rest } = lease
  return { subnet, ipv6Subnet, ...rest, attributes: { ...attributes, ...ipv6Attributes(host) } }
}

/** The same of a node without IPv4. */
export function ipv6Lease(host: number): Lease {
  const attributes = { publicIp: 0, backendType: 'vxlan', ...ipv6Attributes(host) }
  return { subnet: null, ipv6Subnet: ipv6SubnetOf(host), attributes, expiresAtMs: null, revision: 1 }
}

function ipv6SubnetOf(host: number): string {
  return `fd00:10:244:${host}::/64`
}

function ipv6Attributes(host: number) {
  return { publicIpv6: `2001:db8::${host}`, backendV6Data: { VNI: 1, VtepMAC: IPV6_MAC(host) } }
}
