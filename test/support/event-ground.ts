// Where events of peers happen: the family of the tunnel, its device, and the addresses that a test plays with.
export interface EventGround {
  /** Of iproute2. */
  readonly family: '-4' | '-6'
  readonly device: string
  /** The whole pod network. */
  readonly network: string
  /** Of one address: `32` or `128`. */
  readonly hostLength: number
  /** Of a network of the underlay. */
  readonly linkLength: number
  /** A host's subnet by its number. */
  readonly subnetOf: (host: number) => string
  /** An address of the underlay by its last part. */
  readonly underlayOf: (host: number) => string
  /** Somewhere else altogether. */
  readonly elsewhere: string
  /** One that is only asked when ours is gone. */
  readonly higherMetric: string
}

export const IPV4_GROUND: EventGround = {
  family: '-4',
  device: 'flannel.1',
  network: '10.244.0.0/16',
  hostLength: 32,
  linkLength: 24,
  subnetOf: (host) => `10.244.${host}.0/24`,
  underlayOf: (host) => `192.168.56.${host}`,
  elsewhere: '10.9.0.0/16',
  higherMetric: '50',
}

export const IPV6_GROUND: EventGround = {
  family: '-6',
  device: 'flannel-v6.1',
  network: 'fd00:10:244::/48',
  hostLength: 128,
  linkLength: 64,
  subnetOf: (host) => `fd00:10:244:${host}::/64`,
  underlayOf: (host) => `fd00:192:168:56::${host}`,
  elsewhere: 'fd00:9::/48',
  higherMetric: '2000',
}
