// Checks of the daemon by what it says of itself: whether it runs, what it drops, whom it does not use.
import type { DropReason } from '../../../dataplane/index.ts'
import { dropCounts } from '../../daemon/drop-counts.ts'
import type { DaemonStatus } from '../../daemon/status-file.ts'
import type { Facts } from '../facts.ts'
import { error, note, ok, type Remark, unseen, warning } from '../finding.ts'
import type { PeerView } from '../node-view.ts'
import type { Check } from './check.ts'

const daemon: Check = {
  id: 'daemon',
  group: 'daemon',
  judge: ({ view }) => {
    const { status, stateDirectory } = view
    if (status === null) {
      if (view.statusProblem !== 'it does not exist') {
        const remedy = 'run doctor as root, or with the --state-dir of the daemon'
        return [warning(`${stateDirectory}/status.json cannot be used: ${view.statusProblem}`, remedy)]
      }
      const remedy = 'start it: flannelette run …; or name its --state-dir'
      return [warning(`no daemon has left a status in ${stateDirectory}`, remedy)]
    }
    if (!view.alive) {
      const left = status.state === 'stopping' ? 'was stopped' : 'is gone'
      const remedy = 'start it again; its log says why it ended: journalctl -u flannelette'
      return [error(`the daemon ${left}; its last status is of ${status.since}`, remedy)]
    }
    if (status.state === 'ready') return [ok(`the daemon (pid ${status.pid}) is ready`)]
    const why = status.store.why === '' ? '' : `: ${status.store.why}`
    const remedy = 'see the other findings, then its log: journalctl -u flannelette'
    if (status.state === 'degraded') return [warning(`the daemon is degraded${why}`, remedy)]
    return [error(`the daemon is ${status.state}${why}`, remedy)]
  },
}

const apiSocket: Check = {
  id: 'api-socket',
  group: 'daemon',
  judge: ({ view, apiAnswers }) => {
    if (!view.alive) return []
    if (!apiAnswers.seen) return [unseen(`the daemon's local socket: ${apiAnswers.why}`)]
    if (apiAnswers.value) return [ok('the daemon answers on its local socket')]
    const message = `the daemon does not answer on ${view.stateDirectory}/api.sock`
    return [warning(message, 'if it starts still, wait; else it hangs: restart it and keep its log')]
  },
}

/** What every host makes: nobody's trouble. */
const NOISE: DropReason = 'link-local-or-multicast'

const drops: Check = {
  id: 'drops',
  group: 'daemon',
  judge: ({ view, laterCounters }) => {
    if (!view.alive) return []
    const before = dropCounts(view.status?.counters ?? {})
    if (before.length === 0) return [unseen('dropped packets: the daemon does not count them now')]
    const now = (laterCounters === null ? before : dropCounts(laterCounters)).filter(({ reason }) => reason !== NOISE)
    const known = new Map(before.map(({ direction, reason, packets }) => [`${direction} ${reason}`, packets]))
    const grown = now.flatMap(({ direction, reason, packets }) => {
      const more = packets - (known.get(`${direction} ${reason}`) ?? 0)
      return more > 0 ? [{ what: `${direction} ${reason}`, reason, packets, more }] : []
    })
    if (grown.length === 0) {
      const total = now.reduce((sum, { packets }) => sum + packets, 0)
      if (total === 0) return [ok('no packets were dropped')]
      const lately = laterCounters === null ? 'whether more are was not seen' : 'none just now'
      return [note(`${total} packets were dropped earlier, ${lately}`)]
    }
    return grown.map(({ what, reason, packets, more }) => {
      const message = `packets are being dropped: ${what}, ${more} in the last second, ${packets} in all`
      return warning(message, `docs/troubleshooting.md#${reason} says why`)
    })
  },
}

/** Packets that went out before silence means something, and how long it has to last, milliseconds. */
const ENOUGH_SENT = 100
const SILENCE_MS = 30_000

const silence: Check = {
  id: 'silence',
  group: 'daemon',
  judge: ({ view }) => {
    const { status, peers } = view
    if (status === null || !view.alive || peers.length === 0) return []
    const silent = peers.filter(isSilent)
    const { 'outbound.packets.passed': sent, 'inbound.packets.passed': received } = status.counters
    if (silent.length === 0) {
      if (sent === undefined || received === undefined) return [unseen('traffic: the daemon does not count it now')]
      if (received > 0) return [ok('packets go out and come in')]
      if (sent <= ENOUGH_SENT) return [ok(`nothing has come in yet; ${sent} packets went out`)]
      return [warning(`${sent} packets went to peers and none has come back`, silenceAdvice(status.node, peers[0]))]
    }
    return silent.map((peer) => {
      const since = peer.traffic?.lastReceived ?? 'it is known'
      const message = `${peer.traffic?.sentPackets} packets went to ${peer.publicIp} (${peer.subnet}) and none has come back since ${since}`
      return warning(message, silenceAdvice(status.node, peer))
    })
  },
}

/** Sending, and nothing comes back. */
function isSilent({ traffic }: PeerView): boolean {
  if (traffic == null || traffic.lastSent === null || traffic.sentPackets <= ENOUGH_SENT) return false
  if (traffic.lastReceived === null) return true
  return Date.parse(traffic.lastSent) - Date.parse(traffic.lastReceived) > SILENCE_MS
}

/** The usual reasons and how to tell them apart. */
export function silenceAdvice(node: DaemonStatus['node'], { publicIp: peer } = { publicIp: 'PEER' }): string {
  const port = node?.port ?? 8472
  return [
    `firewall: on ${peer} tcpdump -ni any udp port ${port} sees nothing`,
    `hypervisor that takes UDP ${port} for its own VXLAN: plain bytes (echo x | nc -u ${peer} ${port}) arrive there, VXLAN does not; choose another Backend.Port`,
    `another port or VNI there: flannelette doctor on ${peer}`,
    `MTU: flannelette ping ${peer}`,
  ].join('; ')
}

const peers: Check = {
  id: 'peers',
  group: 'daemon',
  judge: ({ view }) => {
    const { status } = view
    if (status === null || !view.alive) return []
    const leftOut = status.leftOut.map(({ subnet, publicIp, reason, detail }) =>
      warning(
        `peer ${publicIp} (${subnet}) is not used: ${reason}: ${detail}`,
        `correct it on ${publicIp}, or delete its lease`,
      ),
    )
    const conflicts = status.conflicts.map((conflict) =>
      warning(`leases contradict each other: ${conflict}`, 'delete the lease that no running node holds'),
    )
    const pending =
      status.pendingPeers === 0
        ? []
        : [warning(`${status.pendingPeers} peers are not programmed yet`, 'the log names why: peer-pending')]
    const all = [...leftOut, ...conflicts, ...pending]
    return all.length === 0 ? [ok(`${status.peers.length} peers, all in use`)] : all
  },
}

const offenders: Check = {
  id: 'offenders',
  group: 'daemon',
  judge: ({ view }) => {
    if (view.status === null || !view.alive) return []
    const { offenders: list, dataplane } = view.status
    if (dataplane === 'kernel') {
      const message = 'the kernel dataplane checks no source: whoever reaches its UDP port may send packets to pods'
      return [note(message, 'let only nodes reach the port, or run with --dataplane userspace')]
    }
    if (list.length === 0) return [ok('the source check refused nobody lately')]
    return list.slice(0, 3).map(({ outerSource, innerSource, reason, packets, lastSeen }) => {
      const message = `${packets} packets from ${outerSource} (inner source ${innerSource}) were refused: ${reason}, last ${lastSeen}`
      const remedy =
        reason === 'unknown-peer'
          ? `is ${outerSource} a node? then its lease has another public address (--public-ip); else block it`
          : `if ${outerSource} forwards for others: --source-allow ${innerSource}/32 (or their CIDR)`
      return warning(message, remedy)
    })
  },
}

const duplicateIdentity: Check = {
  id: 'duplicate-identity',
  group: 'daemon',
  judge: (facts) => {
    const { status } = facts.view
    if (status === null) return []
    const all = [...(status.lease === null ? [] : [status.lease]), ...status.peers]
    const found = [
      ...doubles(all.map(({ vtepMac, subnet }) => [vtepMac, subnet])).map(([mac, subnets]) =>
        error(
          `the VTEP MAC ${mac} is in the leases of ${subnets.join(' and ')}: only one of them can be reached`,
          'two nodes were cloned: stop one daemon, delete "mac" and "lease.json" in its --state-dir, start it again',
        ),
      ),
      ...doubles(all.map(({ publicIp, subnet }) => [publicIp, subnet])).map(([address, subnets]) =>
        error(
          `the public address ${address} has the leases ${subnets.join(' and ')}`,
          `delete the one that ${address} does not use; two nodes behind one address need --public-ip each`,
        ),
      ),
      ...macTaken(facts),
    ]
    return found.length === 0 ? [ok('VTEP MACs and public addresses are unique')] : found
  },
}

/** What the plain UDP backend has in place of one. */
const NO_MAC = '00:00:00:00:00:00'

/** Two devices of this host with the daemon's MAC. */
function macTaken({ view, links }: Facts): Remark[] {
  const node = view.status?.node
  if (!links.seen || node === undefined || node === null || node.mac === NO_MAC) return []
  const same = links.value.filter(({ address, ifname }) => address === node.mac && ifname !== node.device)
  return same.map(({ ifname }) =>
    error(
      `the interface ${ifname} has the VTEP's MAC ${node.mac}`,
      `ip link set ${ifname} address another, or delete it`,
    ),
  )
}

/** Keys that occur more than once, with what they stand for. */
function doubles(pairs: readonly (readonly [string | null, string])[]): [string, string[]][] {
  const byKey = new Map<string, string[]>()
  for (const [key, value] of pairs) {
    if (key !== null && key !== NO_MAC) byKey.set(key, [...(byKey.get(key) ?? []), value])
  }
  return [...byKey].filter(([, values]) => new Set(values).size > 1)
}

export const DAEMON_CHECKS: readonly Check[] = [daemon, apiSocket, drops, silence, peers, offenders, duplicateIdentity]
