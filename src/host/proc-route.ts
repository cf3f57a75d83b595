// The kernel's routes and IPv6 addresses as files of /proc/net list them (proc(5), net/ipv6/route.c,
// net/ipv6/addrconf.c of Linux): no program is started for a look, so one may look often.
import { formatAddress, type Ipv4Prefix, type Ipv6Prefix, maskOf, type Prefix } from '../../dataplane/index.ts'

/** Columns of a line of `route`. */
const DEVICE = 0
const DESTINATION = 1
const GATEWAY = 2
const MASK = 7

/**
 * Columns of `ipv6_route`: destination, its length, source, its length, gateway, …, device last. All numbers are hex, in
 * network order.
 */
const IPV6_DESTINATION = 0
const IPV6_LENGTH = 1
const IPV6_GATEWAY = 4
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

/** A route as the lists have it: whose it is they do not tell. */
export interface ListedRoute {
  readonly prefix: Prefix
  /** Text form; absent where it leads to a link itself. */
  readonly gateway?: string
  /** `*` for a route that leads nowhere. */
  readonly device: string
}

/** All that `route` lists. */
export function listedRoutes(list: string): ListedRoute[] {
  const lines = list.split('\n').slice(1) // the first one names the columns
  return lines.flatMap((line) => {
    const columns = line.trim().split(/\s+/)
    const { [DEVICE]: device = '', [DESTINATION]: destination, [GATEWAY]: gateway, [MASK]: mask } = columns
    if (destination === undefined || gateway === undefined || mask === undefined) return []
    // Ones, then zeros.
    const length = Math.clz32(~fromHex(mask))
    return [{ prefix: { address: fromHex(destination), length }, ...throughGateway(fromHex(gateway)), device }]
  })
}

/** All that `ipv6_route` lists. */
export function listedIpv6Routes(list: string): ListedRoute[] {
  return list.split('\n').flatMap((line) => {
    const columns = line.trim().split(/\s+/)
    const { [IPV6_DESTINATION]: destination, [IPV6_LENGTH]: length, [IPV6_GATEWAY]: gateway } = columns
    if (destination === undefined || length === undefined || gateway === undefined) return []
    const prefix = { address: BigInt(`0x${destination}`), length: Number.parseInt(length, 16) }
    return [{ prefix, ...throughGateway(BigInt(`0x${gateway}`)), device: columns.at(-1)! }]
  })
}

/** An address of zeros is none. */
function throughGateway(address: number | bigint): { gateway?: string } {
  return address === 0 || address === 0n ? {} : { gateway: formatAddress(address) }
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

/** The number in network order that a little-endian machine has printed so. */
function fromHex(text: string): number {
  const bytes = new DataView(new ArrayBuffer(4))
  bytes.setUint32(0, Number.parseInt(text, 16), true)
  return bytes.getUint32(0)
}
