// What the own key can look like in the store, and what follows:
//   as we wrote it              nothing
//   gone                        put back by compare-and-swap (same subnet), or lost when somebody took it meanwhile
//   something that is no lease  written again by compare-and-swap: nobody else's claim
//   another node's              lost
//   ours, later revision        a write of ours whose answer never came, or a reservation made by an operator: taken
//                               over; otherwise another host uses our address: lost
//   ours, earlier revision      the store was restored from a copy: taken over
// Here a lease that stands there is judged; lease-manager.ts does what follows.
import { FlanneletteError } from '../errors.ts'
import { sameAttributes } from './diff.ts'
import {
  type Halves,
  identityInWords,
  identityOf,
  type Lease,
  type LeaseAttributes,
  nameOf,
  sameSubnet,
} from './lease.ts'

/** What is known of the own lease. */
export interface OwnClaim {
  readonly own: Lease
  /** Confirmed by the store, and not in doubt since. */
  readonly isHeld: boolean
  /** A write of ours may have happened without our knowing its revision. */
  readonly isUnsure: boolean
  /** Attributes of a write whose answer never came, `null` without one: they are ours as well. */
  readonly attempted: LeaseAttributes | null
}

/** `same`: as we wrote it. `ours`: to be taken over. Else why it is lost. */
export type OwnKeyVerdict = 'same' | 'ours' | FlanneletteError

/** `seen`: the lease that stands at the own key now. */
export function judgeOwnKey(seen: Lease, { own, isHeld, isUnsure, attempted }: OwnClaim): OwnKeyVerdict {
  if (seen.revision === own.revision && isHeld) return 'same'
  if (attempted !== null && sameAttributes(seen.attributes, attempted)) return 'ours'
  if (identityOf(seen.attributes) !== identityOf(own.attributes)) return ownerChanged(own, seen)
  const isReserved = seen.expiresAtMs === null || own.expiresAtMs === null
  const isOurs = isUnsure || isReserved || seen.revision <= own.revision
  const saysTheSame = seen.ipv6Subnet === own.ipv6Subnet && sameAttributes(seen.attributes, own.attributes)
  return isOurs && saysTheSame ? 'ours' : duplicate(own, seen)
}

/** Whether both are the very same key, with its IPv6 half. */
export function isSameKey(a: Halves, b: Halves): boolean {
  return sameSubnet(a, b) && a.ipv6Subnet === b.ipv6Subnet
}

function ownerChanged(own: Lease, seen: Lease): FlanneletteError {
  const who = `${identityInWords(seen.attributes)} (revision ${seen.revision})`
  const message = `own lease ${nameOf(own)} was lost (owner changed): it belongs to ${who} now`
  return new FlanneletteError('lease-conflict', message, { remedy: 'start again to get another subnet' })
}

function duplicate(own: Lease, seen: Lease): FlanneletteError {
  const address = identityInWords(own.attributes)
  const message = `another host, or a second daemon here, uses our public address ${address}: it wrote lease ${nameOf(own)} (revision ${seen.revision})`
  const remedy = 'give each host an address of its own with --iface or --public-ip'
  return new FlanneletteError('lease-conflict', message, { remedy })
}
