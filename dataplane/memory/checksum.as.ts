// The Internet checksum kernel (RFC 1071), compiled from AssemblyScript to WebAssembly with SIMD. It works on the
// packet memory itself, so nothing is copied. Its slow twin is dataplane/wire/internet-checksum.ts.

/**
 * One's-complement sum of `length` bytes at `at`, folded to 16 bits, in network byte order: what a checksum field
 * would hold before it is complemented. An odd last byte counts as the high half of a word. `length` up to 256 KiB.
 *
 * Words are added in the machine's (little-endian) order and the bytes swapped once at the end: one's-complement
 * sums do not care (RFC 1071 §2 B). Each 32-bit lane takes at most 2 × 0xffff per 16 bytes.
 */
export function sum(at: usize, length: u32): u32 {
  let lanes: v128 = i32x4.splat(0)
  const wideEnd: usize = at + (length & ~63)
  while (at < wideEnd) {
    lanes = i32x4.add(lanes, i32x4.extadd_pairwise_i16x8_u(v128.load(at)))
    lanes = i32x4.add(lanes, i32x4.extadd_pairwise_i16x8_u(v128.load(at, 16)))
    lanes = i32x4.add(lanes, i32x4.extadd_pairwise_i16x8_u(v128.load(at, 32)))
    lanes = i32x4.add(lanes, i32x4.extadd_pairwise_i16x8_u(v128.load(at, 48)))
    at += 64
  }
  let left: u32 = length & 63
  while (left >= 16) {
    lanes = i32x4.add(lanes, i32x4.extadd_pairwise_i16x8_u(v128.load(at)))
    at += 16
    left -= 16
  }
  let total: u64 =
    <u64>(<u32>i32x4.extract_lane(lanes, 0)) +
    <u64>(<u32>i32x4.extract_lane(lanes, 1)) +
    <u64>(<u32>i32x4.extract_lane(lanes, 2)) +
    <u64>(<u32>i32x4.extract_lane(lanes, 3))
  while (left >= 2) {
    total += <u64>load<u16>(at)
    at += 2
    left -= 2
  }
  if (left != 0) total += <u64>load<u8>(at)
  let folded: u32 = <u32>((total & 0xffff) + ((total >> 16) & 0xffff) + (total >> 32))
  folded = (folded & 0xffff) + (folded >> 16)
  folded = (folded & 0xffff) + (folded >> 16)
  return ((folded & 0xff) << 8) | (folded >> 8)
}
