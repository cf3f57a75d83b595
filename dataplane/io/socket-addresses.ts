// What a socket of IPv6 must know of the numbers that batches and slots carry in place of addresses. For IPv4 there is nothing
// to know: an address is its own number.

export interface SocketAddresses {
  /** Signed number of whoever has the IPv6 address that stands at `at`: a peer's, or a stranger's. */
  numberOf(view: DataView, at: number): number
  /** Writes the address behind a number, signed or unsigned, to the 16 bytes at `at`; zeros when nobody has it any more. */
  write(number: number, view: DataView, at: number): void
}
