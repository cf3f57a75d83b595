// What the kernel can take off our hands, by name: whether it does, and why it does or does not. Each is given up
// alone, and nothing but speed depends on any of them. The same names stand behind `downgrade.` in the counters.

/**
 * `tun-tso`, `tun-uso`: super-packets of TCP and UDP are read from the TUN. `tun-gso-…`: packets are written joined.
 * `tun-short-tail`: also with a last segment that is shorter. `tun-checksum`: written with an open checksum. `udp-gso`,
 * `udp-gro`: trains of datagrams are sent and received as one.
 */
export type FeatureName =
  | 'tun-tso'
  | 'tun-uso'
  | 'tun-gso-tcp4'
  | 'tun-gso-tcp6'
  | 'tun-gso-udp'
  | 'tun-short-tail'
  | 'tun-checksum'
  | 'udp-gso'
  | 'udp-gro'

export interface Feature {
  readonly name: FeatureName
  readonly on: boolean
  readonly why: string
  /** It is off because of the kernel, not because somebody wants it so. */
  readonly downgrade: boolean
}

export const works = (name: FeatureName, why: string): Feature => ({ name, on: true, why, downgrade: false })
export const unwanted = (name: FeatureName, why: string): Feature => ({ name, on: false, why, downgrade: false })
export const lost = (name: FeatureName, why: string): Feature => ({ name, on: false, why, downgrade: true })
