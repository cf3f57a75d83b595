// Backends of flannel's that nobody runs here, each with what an operator does instead.

import type { FlanneletteError } from '../errors.ts'
import { invalid } from './config-error.ts'
import type { BackendType } from './network-config.ts'

const ENCRYPTION =
  'encrypt between the hosts (WireGuard or IPsec of their own, with Backend.MTU lowered by what that adds) and take "vxlan" above it, or let flanneld serve this network'

/** What to do, by type; of a type that is not here nothing better is known than the ones that run. */
const INSTEAD: Readonly<Partial<Record<BackendType, string>>> = {
  wireguard: ENCRYPTION,
  ipsec: ENCRYPTION,
  ipip: 'take "vxlan", which works wherever ipip does and costs 30 bytes more, or let flanneld serve this network',
  'tencent-vpc':
    'take "alloc" and let the routes of the cloud be written by its own controller, take "vxlan", or let flanneld serve this network',
}

/** The error for a type that this version does not run. */
export function unsupportedBackend(type: BackendType): FlanneletteError {
  const remedy = INSTEAD[type] ?? 'take "vxlan", "host-gw", "udp", "alloc" or "extension"'
  return invalid('Backend.Type', `"${type}" is not supported: flannelette does not run this backend`, remedy)
}
