// Congestion bits at the tunnel, as the Linux kernel sets them (include/net/inet_ecn.h), which follows RFC 6040.

export const NOT_ECT = 0
export const ECT1 = 1
export const ECT0 = 2
export const CE = 3
export const ECN_MASK = 3

/** ECN of the outer header for an inner TOS byte: copied, except that CE becomes ECT(0). DSCP is not copied. */
export function encapsulateEcn(innerTos: number): number {
  const inner = innerTos & ECN_MASK
  return inner === CE ? ECT0 : inner
}

/** The combination that RFC 6040 §4.2 forbids: congestion was marked on a packet that is not ECN-capable. */
export const ECN_ILLEGAL = -1

/** ECN of the inner header after decapsulation, or {@link ECN_ILLEGAL}. */
export function decapsulateEcn(inner: number, outer: number): number {
  if (outer === CE) return inner === NOT_ECT ? ECN_ILLEGAL : CE
  return inner === ECT0 && outer === ECT1 ? ECT1 : inner
}
