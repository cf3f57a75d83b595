// What the rules of lease stores need of a store under test, and the requests they make.
import { parseIpv4 } from '../../dataplane/wire/address.ts'
import { parsePrefix } from '../../dataplane/wire/prefix.ts'
import { parseNetworkConfig } from '../../src/config/network-config.ts'
import type { Lease, LeaseAttributes } from '../../src/lease/lease.ts'
import type { AcquireRequest, LeaseStore } from '../../src/store/lease-store.ts'
import { peerLease } from './peer-lease.ts'
import type { VirtualClock } from './virtual-clock.ts'

/** A store under test, and what an operator with direct access to its data could do. */
export interface StoreHarness {
  readonly clock: VirtualClock
  /** Another node's view of the same data. */
  open(): LeaseStore
  setConfig(text: string | null): void
  /** Writes a lease behind everybody's back, with a revision of its own making. */
  put(lease: Lease): void
  remove(subnet: string): void
  /** Makes every call fail as if the store were away, or works again. */
  setOutage(away: boolean): void
}

export const CONFIG = '{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}'
export const DUAL_CONFIG =
  '{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:10:244::/48","Backend":{"Type":"vxlan","IPv6OverIPv4":true}}'
export const A = '192.0.2.1'
export const B = '192.0.2.2'
export const MAC = '0a:00:00:00:00:01'

export function attributesOf(publicIp: string, mac = MAC): LeaseAttributes {
  return peerLease('10.244.0.0/24', publicIp, mac).attributes
}

export function request(publicIp: string, previous: string | null = null, config = CONFIG): AcquireRequest {
  return {
    network: parseNetworkConfig(config),
    publicIp: parseIpv4(publicIp)!,
    previousSubnet: previous === null ? null : parsePrefix(previous),
    previousIpv6Subnet: null,
    attributes: () => attributesOf(publicIp),
  }
}

export type Make = () => StoreHarness
