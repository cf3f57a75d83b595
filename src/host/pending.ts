// Subnets of peers that packets are not sent to for now, and why: what every dataplane says in the same terms. What it
// means is in dataplane.ts (`pendingSubnets`).

/** By subnet in text form: why, in one phrase. */
export type Pending = ReadonlyMap<string, string>

export const NOTHING_PENDING: Pending = new Map()

/** Nothing is sent without it, whichever way a peer is reached. */
export const UNDERLAY_GONE = 'the underlay address is gone'

/** All of them, for one reason. */
export function allPending(subnets: readonly string[], why: string): Pending {
  return new Map(subnets.map((subnet) => [subnet, why]))
}
