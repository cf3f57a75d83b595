// The kernel's routes and IPv6 addresses as files of /proc/net list them (proc(5), net/ipv6/route.c,
// net/ipv6/addrconf.c of Linux): no program is started for a look, so one may look often.
import { type Ipv4Prefix, type Ipv6Prefix, maskOf } from '../../dataplane/index.ts'

/** Columns of a line of `route`. */
const DEVICE = 0
const DESTINATION = 1
const MASK = 7

/** Columns of `ipv6_route`: destination, its length, …, device last. All numbers are hex, in network order. */
const IPV6_DESTINATION = 0
const IPV6_LENGTH = 1
/** Columns of `if_inet6`: address, interface index, length, scope, flags, device. */
const IPV6_ADDRESS = 0

/** Whether the list has a route of exactly this prefix into the device. Only the main table is listed. */
export function hasRoute(list: string, prefix: Ipv4Prefix, deviceName: string): boolean {
  const destination = inHex(prefix.address)
  const mask = inHex(maskOf(prefix.length))
  return list.split('\n').some((line) => {
    const columns = line.trim().split(/\s+/)
    return columns[DEVICE] === deviceName && columns[DESTINATION] === destination && columns[MASK] === mask
  })
}

/** The same for `ipv6_route`. Local and multicast routes of the kernel are listed too. */
export function hasIpv6Route(list: string, prefix: Ipv6Prefix, deviceName: string): boolean {
  const destination = inIpv6Hex(prefix.address)
  const length = prefix.length.toString(16).padStart(2, '0')
  return list.split('\n').some((line) => {
    const columns = line.trim().split(/\s+/)
    const same = columns[IPV6_DESTINATION] === destination && columns[IPV6_LENGTH] === length
    return same && columns.at(-1) === deviceName
  })
}

/** Whether `if_inet6` lists the address on the device. */
export function hasIpv6Address(list: string, address: bigint, deviceName: string): boolean {
  return list.split('\n').some((line) => {
    const columns = line.trim().split(/\s+/)
    return columns[IPV6_ADDRESS] === inIpv6Hex(address) && columns.at(-1) === deviceName
  })
}

function inIpv6Hex(address: bigint): string {
  return address.toString(16).padStart(32, '0')
}

/** As a little-endian machine prints a number in network order. */
function inHex(address: number): string {
  const bytes = new DataView(new ArrayBuffer(4))
  bytes.setUint32(0, address)
  return bytes.getUint32(0, true).toString(16).toUpperCase().padStart(8, '0')
}
