// An address of a packet as a value: for steps, which may allocate.

/** The address at `at`: a number for IPv4, a bigint for IPv6. */
export function addressOf(view: DataView, version: number, at: number): number | bigint {
  if (version === 4) return view.getUint32(at)
  return (view.getBigUint64(at) << 64n) | view.getBigUint64(at + 8)
}
