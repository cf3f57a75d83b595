// The memory in which packets live: one fixed, shared WebAssembly memory per worker. The kernel reads and writes it
// through the addresses in iovecs, the kernels (*.as.ts) work on it in place, and nothing on the hot path allocates.
import { KERNELS_WASM_BASE64 } from './kernels.generated.ts'

const PAGE_BYTES = 65536
/** `struct iovec` on LP64 (readv(2)): base address and length, 8 bytes each. */
export const IOVEC_BYTES = 16

/** Process address of the first byte of an array; the memory driver, which has no kernel to talk to, says 0. */
export type AddressOf = (bytes: Uint8Array) => number

/** Offsets within a frame and lengths in bytes; `length` is that of the IP packet. */
export type CountAlike = (
  at: number,
  stride: number,
  most: number,
  ipAt: number,
  ipBytes: number,
  headerBytes: number,
  length: number,
) => number

/**
 * Memory whose addresses all share their high half, so that an iovec base is one addition and no carry. The odds of
 * straddling a 4 GiB boundary are about size / 4 GiB; the next allocation then lies elsewhere.
 */
function allocate(sizeBytes: number, addressOf: AddressOf) {
  const pages = Math.ceil(sizeBytes / PAGE_BYTES)
  const straddling: WebAssembly.Memory[] = []
  while (straddling.length < 8) {
    const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true })
    const bytes = new Uint8Array(memory.buffer)
    const base = addressOf(bytes)
    if ((base >>> 0) + bytes.length <= 2 ** 32) return { memory, bytes, base }
    straddling.push(memory)
  }
  throw new Error('no packet memory below a 4 GiB boundary')
}

export class PacketMemory {
  readonly bytes: Uint8Array
  readonly view: DataView
  readonly words: Uint32Array
  /** Process address of byte 0, in two halves as iovecs want it. */
  readonly baseLow: number
  readonly baseHigh: number
  /**
   * One's-complement sum of `length` bytes at `at`, folded, in network byte order, not complemented (RFC 1071).
   */
  readonly sum: (at: number, length: number) => number
  /** How many of the frames behind the one at `at` go on as it did; see countAlike in alike.as.ts. */
  readonly countAlike: CountAlike
  #reserved = PAGE_BYTES / 16 // offset 0 is never handed out: a zero offset in a structure is a mistake to be seen

  constructor(sizeBytes: number, addressOf: AddressOf = () => 0) {
    const { memory, bytes, base } = allocate(sizeBytes, addressOf)
    this.bytes = bytes
    this.view = new DataView(memory.buffer)
    this.words = new Uint32Array(memory.buffer)
    this.baseHigh = Math.floor(base / 2 ** 32)
    this.baseLow = base >>> 0
    const module = new WebAssembly.Module(Buffer.from(KERNELS_WASM_BASE64, 'base64'))
    const kernels = new WebAssembly.Instance(module, { env: { memory } }).exports
    this.sum = kernels.sum as PacketMemory['sum']
    this.countAlike = kernels.countAlike as CountAlike
  }

  /** Sets a region aside for good, aligned to 64 bytes. @throws Error when the memory was made too small */
  reserve(bytes: number): number {
    const at = this.#reserved
    this.#reserved = at + Math.ceil(bytes / 64) * 64
    if (this.#reserved > this.bytes.length) throw new Error(`packet memory of ${this.bytes.length} bytes is too small`)
    return at
  }

  /** Process address of an offset, as a number: exact, since user addresses stay below 2^48. */
  addressAt(at: number): number {
    return this.baseHigh * 2 ** 32 + this.baseLow + at
  }

  /** Writes entry `index` of the iovec array at `table`: `length` bytes at offset `at` of this memory. */
  setIovec(table: number, index: number, at: number, length: number): void {
    const word = (table >> 2) + index * 4
    this.words[word] = this.baseLow + at
    this.words[word + 1] = this.baseHigh
    this.words[word + 2] = length
    this.words[word + 3] = 0
  }

  /** Offset in this memory that an iovec points to. */
  iovecAt(table: number, index: number): number {
    return (this.words[(table >> 2) + index * 4] ?? 0) - this.baseLow
  }

  iovecLength(table: number, index: number): number {
    return this.words[(table >> 2) + index * 4 + 2] ?? 0
  }

  /** Lets an iovec cover `more` bytes that follow it directly. */
  growIovec(table: number, index: number, more: number): void {
    const word = (table >> 2) + index * 4 + 2
    this.words[word] = (this.words[word] ?? 0) + more
  }
}

/** Folds a sum of 16-bit words (below 2^32) to 16 bits, carries added back in (RFC 1071). */
export function fold(sum: number): number {
  const once = (sum & 0xffff) + (sum >>> 16)
  return (once & 0xffff) + (once >>> 16)
}

/** What a checksum field holds for a sum of words: its complement. */
export function complement(sum: number): number {
  return ~fold(sum) & 0xffff
}

/** The same for UDP, where zero would mean "none": 0xffff is sent in its place (RFC 768). */
export function complementUdp(sum: number): number {
  const checksum = ~fold(sum) & 0xffff
  return checksum === 0 ? 0xffff : checksum
}
