// An address of a packet as a value: for steps, which may allocate.
import * as ipv6 from '../wire/ipv6.ts'

/** The address at `at`: a number for IPv4, a bigint for IPv6. */
export function readAddress(view: DataView, version: number, at: number): number | bigint {
  if (version === 4) return view.getUint32(at)
  return ipv6.addressAt(view, at)
}
