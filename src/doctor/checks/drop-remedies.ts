// What to do about packets that are dropped just now, for the reasons whose cause lies outside the daemon. What each
// reason means is told in docs/troubleshooting.md.
import type { DropReason } from '../../../dataplane/index.ts'

const REMEDIES: Readonly<Partial<Record<DropReason, string>>> = {
  'no-route': 'pods send to a subnet that no node holds: flannelette status -o wide lists those that are held',
  'too-big': 'pods have a larger MTU than the overlay: compare FLANNEL_MTU in subnet.env with ip link show in a pod',
  'tx-unreachable': 'the underlay has no way to a peer: flannelette doctor --peers names it',
  'tx-too-big':
    'the underlay takes less than its MTU says: flannelette doctor --peers names the peer, ping NODE measures',
  'tun-queue-full': 'pods send more than this host forwards: see "slower than it should be"',
  'rx-queue-full': 'more arrives than this host forwards: see "slower than it should be"',
  'vni-unknown': 'another overlay uses this port: compare VNI and Port of Backend on all nodes',
  'vxlan-no-vni': 'something else than VXLAN arrives at this port: tcpdump -ni any udp port names the sender',
  'inner-destination-mac':
    'peers know another MAC of this node: its lease in the store is not what the daemon wrote (cloned node, edited lease): restart the daemon',
  'inner-destination-foreign':
    'peers believe that this node holds a subnet which it does not: two nodes with one public address, or an old lease',
  'unknown-peer': 'the check offenders names who sends',
  'inner-source-spoofed': 'the check offenders names who sends',
  'bad-checksum':
    'packets are damaged on the way or by an offload: ethtool -K DEVICE tx-udp-segmentation off on the sender',
}

/** @param reason as the counters name it */
export function dropRemedy(reason: string): string {
  const meaning = `docs/troubleshooting.md#${reason} says what it means`
  const todo = REMEDIES[reason as DropReason]
  return todo === undefined ? meaning : `${todo}; ${meaning}`
}
