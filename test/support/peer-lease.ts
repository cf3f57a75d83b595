// Leases of peers as tests want them: short to write, flannel's form inside.
import { parseIpv4 } from '../../dataplane/wire/address.ts'
import { parsePrefix } from '../../dataplane/wire/prefix.ts'
import type { Lease } from '../../src/lease/lease.ts'

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
