// A daemon's status to change: a node with two peers, all well.

import type { PeerStatus } from '../../src/daemon/peer-status.ts'
import type { DaemonStatus } from '../../src/daemon/status-file.ts'

/** When the example was taken. */
export const TAKEN_MS = Date.parse('2026-01-01T12:00:00.000Z')

const PEER: Omit<PeerStatus, 'subnet' | 'publicIp' | 'vtepMac'> = {
  ...{ ipv6Subnet: null, backendType: 'vxlan', expiresAt: '2026-01-02T11:00:00.000Z', revision: 4, state: 'active' },
  ways: null,
  pathMtu: null,
  traffic: {
    ...{ sentPackets: 12, sentBytes: 1008, lastSent: '2026-01-01T11:59:58.000Z' },
    ...{ receivedPackets: 11, receivedBytes: 924, lastReceived: '2026-01-01T11:59:57.000Z' },
  },
}

export const SILENT_PEER: PeerStatus = {
  ...PEER,
  ...{ subnet: '10.244.3.0/24', publicIp: '192.0.2.3', vtepMac: '0a:00:00:00:00:03', state: 'no-answer' },
  traffic: { ...PEER.traffic!, sentPackets: 43, receivedPackets: 0, receivedBytes: 0, lastReceived: null },
}

export const HEALTHY: DaemonStatus = {
  version: 1,
  since: '2026-01-01T11:59:59.000Z',
  pid: 4242,
  state: 'ready',
  dataplane: 'userspace',
  dataplaneWhy: null,
  entropy: '16 source ports',
  driver: 'offload',
  outerDf: 'clear',
  features: { 'udp-gso': { on: true, why: 'granted by the kernel' } },
  store: { name: 'file:/store', reachable: true, why: '' },
  node: {
    ...{ device: 'flannel.1', vni: 1, port: 8472, mac: '0a:00:00:00:00:01', underlayInterface: 'eth0', mtu: 1450 },
    ...{ underlayAddress: '192.0.2.1', overlayAddress: '10.244.1.0', network: '10.244.0.0/16' },
    ...{ overlayIpv6: null, ipv6Network: null },
  },
  lease: {
    ...{ subnet: '10.244.1.0/24', ipv6Subnet: null, publicIp: '192.0.2.1', backendType: 'vxlan', revision: 7 },
    ...{ vtepMac: '0a:00:00:00:00:01', expiresAt: '2026-01-02T11:00:00.000Z', state: 'held', renewedAt: null },
    renewsAt: '2026-01-02T10:00:00.000Z',
  },
  generation: 17,
  peers: [{ ...PEER, subnet: '10.244.2.0/24', publicIp: '192.0.2.2', vtepMac: '0a:00:00:00:00:02' }],
  pendingPeers: 0,
  leftOut: [],
  conflicts: [],
  unreadableLeases: { count: 0, examples: [] },
  health: { live: true, ready: true, checks: [{ name: 'lease', ok: true, about: '10.244.1.0/24 is held' }], notes: [] },
  hostProblem: null,
  offenders: [],
  counters: { 'outbound.packets.read': 12, 'outbound.dropped.no-route': 0 },
}

/** With something of everything that can go wrong. */
export const TROUBLED: DaemonStatus = {
  ...HEALTHY,
  state: 'degraded',
  features: { 'udp-gso': { on: false, why: 'refused by the kernel at work' } },
  store: { name: 'file:/store', reachable: false, why: 'no such directory' },
  peers: [...HEALTHY.peers, SILENT_PEER],
  leftOut: [
    { subnet: '10.244.4.0/24', publicIp: '192.0.2.4', reason: 'incompatible-backend', detail: 'incompatible: host-gw' },
  ],
  unreadableLeases: { count: 3, examples: [{ key: '/store/subnets/x', why: 'its name is no lease key' }] },
  health: { ...HEALTHY.health!, notes: ['the store is away, forwarding goes on by the last table: no such directory'] },
  offenders: [
    {
      ...{ outerSource: '192.0.2.66', innerSource: '10.244.9.9', reason: 'unknown-peer', packets: 3 },
      lastSeen: '2026-01-01T11:59:00.000Z',
    },
  ],
  counters: { 'outbound.dropped.no-route': 42, 'inbound.lost.rx-queue-full': 7, 'downgrade.udp-gso': 1 },
}
