// Why a packet was not passed on. One table: the key is the counter, the traced verdict and the anchor in
// docs/troubleshooting.md. Every packet that was read is passed on or counted under exactly one of these.

export const DROP_REASONS = {
  // outbound: TUN → underlay
  'vnet-inconsistent': { where: 'outbound', about: 'the virtio-net header contradicts the packet behind it' },
  'no-route': { where: 'outbound', about: 'no lease covers the destination; the pod is told with ICMP' },
  'headers-too-long': { where: 'outbound', about: 'a super-packet whose headers are too long to be cut' },
  'too-big': {
    where: 'outbound',
    about: 'larger than the MTU, or than the way to the peer takes, with DF set; the pod is told with ICMP',
  },
  'link-local-or-multicast': { where: 'outbound', about: 'multicast, broadcast or link-local noise of the host' },
  'tx-queue-full': { where: 'outbound', about: 'the socket stayed full for longer than the bounded wait' },
  'tx-nobufs': { where: 'outbound', about: 'the kernel had no buffer for the datagram (ENOBUFS) after retries' },
  'tx-unreachable': { where: 'outbound', about: 'the underlay has no route to the peer, or refuses it' },
  'tx-too-big': { where: 'outbound', about: 'the underlay refused the size (EMSGSIZE)' },
  'tx-error': { where: 'outbound', about: 'the send failed with an errno that has no name of its own' },
  'tun-queue-full': { where: 'outbound', about: "the kernel's TUN queue overflowed before we read (tx_dropped)" },
  // inbound: underlay → TUN
  'rx-truncated': { where: 'inbound', about: 'the datagram was larger than its buffer (MSG_TRUNC)' },
  'rx-queue-full': { where: 'inbound', about: "the socket's receive queue overflowed (SO_RXQ_OVFL)" },
  'vxlan-short': { where: 'inbound', about: 'fewer bytes than a VXLAN and an Ethernet header need' },
  'vxlan-no-vni': { where: 'inbound', about: 'the I flag is clear: the VNI is not valid' },
  'vxlan-reserved-bits': { where: 'inbound', about: 'reserved bits (or GBP bits without GBP) are set' },
  'vni-unknown': { where: 'inbound', about: 'the VNI is not ours' },
  'inner-destination-mac': { where: 'inbound', about: 'the inner destination MAC is not our VTEP MAC' },
  'inner-source-mac': { where: 'inbound', about: 'the inner source MAC is our own, zero or not unicast' },
  'inner-ethertype': { where: 'inbound', about: 'the inner EtherType is neither IPv4 nor IPv6' },
  'unknown-peer': { where: 'inbound', about: 'the outer source is no lease holder' },
  'inner-source-spoofed': { where: 'inbound', about: "the inner source lies outside the sender's lease" },
  'inner-destination-foreign': { where: 'inbound', about: 'the inner destination lies outside our own subnet' },
  'ecn-illegal': { where: 'inbound', about: 'outer CE on an inner packet that is not ECN-capable (RFC 6040)' },
  'bad-checksum': { where: 'inbound', about: 'the inner IPv4 header checksum is wrong' },
  'tun-backpressure': { where: 'inbound', about: 'the TUN did not take the packet in time (EAGAIN)' },
  'tun-down': { where: 'inbound', about: 'the TUN is down (EIO) or was deleted (EBADFD)' },
  'tun-rejected': { where: 'inbound', about: 'the kernel refused the packet (EINVAL)' },
  'tun-error': { where: 'inbound', about: 'the TUN write failed with an errno that has no name of its own' },
  // any packet
  'not-ip': { where: 'both', about: 'the version nibble is neither 4 nor 6' },
  'ttl-expired': { where: 'both', about: 'TTL or hop limit reached zero in a tunnel that counts as a hop' },
  truncated: { where: 'both', about: 'the packet ends before its headers do' },
  'bad-header-length': {
    where: 'both',
    about: 'a header length field is smaller than the header or larger than the packet',
  },
  'too-many-extensions': { where: 'both', about: 'more IPv6 extension headers than any host sends' },
  'bad-version': { where: 'both', about: 'the IP version field is wrong' },
} as const satisfies Record<string, { where: 'outbound' | 'inbound' | 'both'; about: string }>

/** Why a packet was not passed on; see {@link DROP_REASONS}. */
export type DropReason = keyof typeof DROP_REASONS

export const DROP_REASON_NAMES = Object.keys(DROP_REASONS) as readonly DropReason[]
