// The overlay side of the engine: a TUN with virtio-net headers, or its stand-in in memory. One call moves one
// (super-)packet, as read(2) and writev(2) on a TUN do.

export interface PacketDevice {
  /**
   * Reads one packet into packet memory at `at`: a virtio-net header (10 bytes), then the IP packet. `capacity` must
   * hold 10 + 65,535 bytes or the packet is cut. Returns bytes read, 0 when there is nothing to read now, or -errno.
   */
  read(at: number, capacity: number): number
  /**
   * Writes one packet gathered from `count` iovecs at `iovecs`, the first of them holding the virtio-net header.
   * Returns bytes written or -errno. The bytes are the caller's again when the call returns.
   */
  write(iovecs: number, count: number): number
}
