// The kernel's IPv4 routes as /proc/net/route lists them (proc(5)): no program is started for a look, so one may look often.
import { type Ipv4Prefix, maskOf } from '../../dataplane/index.ts'

/** Columns of a line. */
const DEVICE = 0
const DESTINATION = 1
const MASK = 7

/** Whether the list has a route of exactly this prefix into the device. Only the main table is listed. */
export function hasRoute(list: string, prefix: Ipv4Prefix, deviceName: string): boolean {
  const destination = inHex(prefix.address)
  const mask = inHex(maskOf(prefix.length))
  return list.split('\n').some((line) => {
    const columns = line.trim().split(/\s+/)
    return columns[DEVICE] === deviceName && columns[DESTINATION] === destination && columns[MASK] === mask
  })
}

/** As a little-endian machine prints a number in network order. */
function inHex(address: number): string {
  const bytes = new DataView(new ArrayBuffer(4))
  bytes.setUint32(0, address)
  return bytes.getUint32(0, true).toString(16).toUpperCase().padStart(8, '0')
}
