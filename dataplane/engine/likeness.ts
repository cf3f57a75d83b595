// Whether a packet is like the one before it in everything that its way out depends on: most packets are. The same
// answers then hold for it, and none has to be found again. Kept as words, since the packet before may be gone from
// memory.
import * as ipv4 from '../wire/ipv4.ts'
import * as virtioNet from '../wire/virtio-net.ts'

/** Version 4 and a header without options. */
const PLAIN_IPV4 = 0x45
const FRAGMENT_WORD = 6
const PORTS = ipv4.HEADER_LEN
/** Virtio-net header: flags, GSO type and header length; where the checksum starts and stands. */
const OFFLOADS = 0
const CHECKSUM = 6
/** A packet that has ports, or what stands in their place. */
const LEAST_BYTES = ipv4.HEADER_LEN + 4
/** No read is as short as that. */
const NEVER = -virtioNet.HEADER_LEN

export class Likeness {
  #length = NEVER
  #offloads = 0
  #checksum = 0
  #first = 0
  #fragmentAndProtocol = 0
  #source = 0
  #destination = 0
  #ports = 0

  /** Nothing is like the packet before. */
  forget(): void {
    this.#length = NEVER
  }

  /**
   * The packet of `length` bytes at `at`, its virtio-net header in front of it, is what the next one is compared with.
   */
  remember(view: DataView, at: number, length: number): void {
    if (length < LEAST_BYTES || view.getUint8(at) !== PLAIN_IPV4) return
    const vnet = at - virtioNet.HEADER_LEN
    this.#length = length
    this.#offloads = view.getInt32(vnet + OFFLOADS)
    this.#checksum = view.getInt32(vnet + CHECKSUM)
    this.#first = view.getInt32(at)
    this.#fragmentAndProtocol = view.getInt32(at + FRAGMENT_WORD)
    this.#source = view.getInt32(at + ipv4.SOURCE_OFFSET)
    this.#destination = view.getInt32(at + ipv4.DESTINATION_OFFSET)
    this.#ports = view.getInt32(at + PORTS)
  }

  /** Whether the packet that was read as `length` bytes at `at` has the same lengths, offloads, addresses and ports. */
  matches(view: DataView, at: number, length: number): boolean {
    const vnet = at - virtioNet.HEADER_LEN
    return (
      length === this.#length &&
      view.getInt32(at + PORTS) === this.#ports &&
      view.getInt32(at + ipv4.DESTINATION_OFFSET) === this.#destination &&
      view.getInt32(at + ipv4.SOURCE_OFFSET) === this.#source &&
      view.getInt32(at) === this.#first &&
      view.getInt32(at + FRAGMENT_WORD) === this.#fragmentAndProtocol &&
      view.getInt32(vnet + OFFLOADS) === this.#offloads &&
      view.getInt32(vnet + CHECKSUM) === this.#checksum
    )
  }
}
