// How far a train of frames goes on as it began, compiled from AssemblyScript to WebAssembly beside the checksum. One
// call looks at as many frames as are alike, in the packet memory itself. Its slow twin is test/support/alike-twin.ts.
import { sum } from './checksum.as'

/** Bytes of an IPv4 header without options. */
const IPV4_BYTES: u32 = 20
const UDP_BYTES: u32 = 8
const TCP_BYTES: u32 = 20

/**
 * How many of the `most` frames that follow the one at `at` go on as it did, up to the first that does not. Frames lie
 * every `stride` bytes. The one at `at` holds, `ipAt` bytes into it, a whole TCP or UDP packet of `length` bytes
 * without IP options, fragments or extension headers, whose headers are `ipBytes` (IP) and `headerBytes` (both
 * together) long.
 *
 * A frame goes on when all of its headers say the same as those before it, but for the checksums, which must be right
 * (and there, in UDP), IPv4's identification, which is free with DF and one more without, and TCP's sequence, which
 * continues.
 */
export function countAlike(
  at: usize,
  stride: u32,
  most: u32,
  ipAt: u32,
  ipBytes: u32,
  headerBytes: u32,
  length: u32,
): u32 {
  const isIpv4 = ipBytes == IPV4_BYTES
  const isUdp = headerBytes - ipBytes == UDP_BYTES
  const transportBytes = length - ipBytes
  const pseudo = transportBytes + addressesAndProtocol(at + ipAt, isIpv4)
  let before = at
  for (let count: u32 = 0; count < most; count++) {
    const next = before + stride
    const ip = next + ipAt
    if (!(isIpv4 ? continuesIpv4(before, next, ipAt) : isSame(before, next, ipAt + ipBytes))) return count
    const transport = ip + ipBytes
    const transportBefore = before + ipAt + ipBytes
    const payload = length - headerBytes
    if (!(isUdp ? continuesUdp(transportBefore, transport) : continuesTcp(transportBefore, transport, headerBytes - ipBytes, payload)))
      return count
    const total = pseudo + sum(transport, transportBytes)
    if (((total & 0xffff) + (total >> 16)) != 0xffff) return count
    before = next
  }
  return most
}

/** Unfolded sum of what the pseudo-header takes from the IP header. */
function addressesAndProtocol(ip: usize, isIpv4: bool): u32 {
  return isIpv4 ? sum(ip + 12, 8) + <u32>load<u8>(ip, 9) : sum(ip + 8, 32) + <u32>load<u8>(ip, 6)
}

/** Whether `length` bytes, at least 8, are the same at both places. */
function isSame(a: usize, b: usize, length: u32): bool {
  let done: u32 = 0
  while (done + 8 < length) {
    if (load<u64>(a + done) != load<u64>(b + done)) return false
    done += 8
  }
  const last: usize = length - 8
  return load<u64>(a + last) == load<u64>(b + last)
}

/** The tunnel header and IPv4's, which ends with the addresses. */
function continuesIpv4(before: usize, next: usize, ipAt: u32): bool {
  const a = before + ipAt
  const b = next + ipAt
  // Up to the total length; then fragment word, TTL and protocol; then the addresses.
  if (ipAt >= 4 ? !isSame(before, next, ipAt + 4) : load<u32>(a) != load<u32>(b)) return false
  if (load<u32>(a, 6) != load<u32>(b, 6) || load<u64>(a, 12) != load<u64>(b, 12)) return false
  if ((load<u8>(b, 6) & 0x40) == 0 && bswap<u16>(load<u16>(b, 4)) != <u16>(bswap<u16>(load<u16>(a, 4)) + 1)) return false
  return sum(b, IPV4_BYTES) == 0xffff
}

/** Ports and length; a checksum that is zero is none. */
function continuesUdp(before: usize, next: usize): bool {
  return load<u32>(before) == load<u32>(next) && load<u16>(before, 4) == load<u16>(next, 4) && load<u16>(next, 6) != 0
}

/** Ports; acknowledgment to window; urgent pointer; options. */
function continuesTcp(before: usize, next: usize, headerBytes: u32, payload: u32): bool {
  if (load<u32>(before) != load<u32>(next) || load<u64>(before, 8) != load<u64>(next, 8)) return false
  if (load<u16>(before, 18) != load<u16>(next, 18)) return false
  if (bswap<u32>(load<u32>(next, 4)) != bswap<u32>(load<u32>(before, 4)) + payload) return false
  for (let at: usize = TCP_BYTES; at < headerBytes; at += 4) {
    if (load<u32>(before + at) != load<u32>(next + at)) return false
  }
  return true
}
