// Checks of the daemon by what it says of itself: whether it runs, what it drops, whom it does not use.
import type { DropReason } from '../../../dataplane/index.ts'
import { counted } from '../../counted.ts'
import { dropCounts } from '../../daemon/drop-counts.ts'
import { pendingInWords } from '../../daemon/pending-peers.ts'
import type { DaemonStatus } from '../../daemon/status-file.ts'
import { endInWords } from '../../daemon/status-line.ts'
import { whyUnseen } from '../../daemon/unseen-host.ts'
import type { Facts } from '../facts.ts'
import { error, note, ok, type Remark, unseen, warning } from '../finding.ts'
import type { PeerView } from '../node-view.ts'
import type { Check } from './check.ts'
import { dropRemedy } from './drop-remedies.ts'

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
      const left = endInWords(status, 'is gone')
      const remedy = 'start it again; its log says why it ended: journalctl -u flannelette'
      return [error(`the daemon ${left}; its last status is of ${status.since}`, remedy)]
    }
    if (status.state === 'ready') return [ok(`the daemon (pid ${status.pid}) is ready`)]
    const why = reasonsOf(status)
    const remedy = 'see the other findings, then its log: journalctl -u flannelette'
    if (status.state === 'degraded') return [warning(`the daemon is degraded${why}`, remedy)]
    return [error(`the daemon is ${status.state}${why}`, remedy)]
  },
}

/** What the daemon itself gives as the reasons of its state, as the end of a sentence. */
function reasonsOf({ health, store }: DaemonStatus): string {
  const failed = (health?.checks ?? []).filter(({ ok }) => !ok).map(({ about }) => about)
  // Why the store is away is told by the check of the store, and why the host cannot be looked at by hostView.
  const notes = (health?.notes ?? []).map((text) => {
    if (whyUnseen(text) !== null) return 'it cannot look at its host'
    return text.startsWith('the store is away') ? 'the store is away' : text
  })
  const reasons = [...failed, ...notes]
  if (reasons.length === 0 && store.why !== '') reasons.push(store.why)
  return reasons.length === 0 ? '' : `: ${reasons.join('; ')}`
}

/** What the daemon sees of its own device, routes and entries. */
const hostView: Check = {
  id: 'host-view',
  group: 'daemon',
  judge: ({ view }) => {
    if (view.status === null || !view.alive) return []
    const reasons = (view.status.health?.notes ?? []).flatMap((text) => whyUnseen(text) ?? [])
    if (reasons.length === 0) return [ok('nothing keeps the daemon from looking at its host')]
    const { pid } = view.status
    return reasons.map((why) => {
      const message = `the daemon (pid ${pid}) cannot look at its host, and mends nothing that others change there: ${why}`
      return warning(message, viewRemedy(why, pid))
    })
  },
}

/** By what was said when a program could not run, or a file of /proc could not be opened. */
function viewRemedy(why: string, pid: number): string {
  const program = /the program `([^`]+)` is missing/.exec(why)?.[1]
  if (program !== undefined) {
    return `install what brings \`${program}\` (Debian: iproute2); if it is there, add its directory to the daemon's PATH: tr '\\0' '\\n' < /proc/${pid}/environ | grep ^PATH=`
  }
  if (/EMFILE|ENFILE/.test(why))
    return `it has no files left to open: grep files /proc/${pid}/limits; raise LimitNOFILE=`
  if (/EACCES|EPERM/.test(why))
    return 'may the daemon run it? ls -l "$(command -v ip)"; its unit, AppArmor and SELinux as well'
  return `does it work by hand? nsenter -t ${pid} -n ip -json route show; the daemon tries it again by itself`
}

const networkNamespace: Check = {
  id: 'network-namespace',
  group: 'daemon',
  judge: ({ view, elsewhere }) => {
    if (!view.alive) return []
    if (!elsewhere) return [ok('doctor and daemon see the same network')]
    const pid = view.status?.pid ?? 'PID'
    const message = `the daemon (pid ${pid}) lives in another network namespace: its devices, routes and firewall are out of sight`
    return [error(message, `nsenter -t ${pid} -n flannelette doctor --state-dir ${view.stateDirectory}`)]
  },
}

const apiSocket: Check = {
  id: 'api-socket',
  group: 'daemon',
  judge: ({ view, apiSocket: path, apiAnswers }) => {
    if (!view.alive) return []
    if (!apiAnswers.seen) return [unseen(`the daemon's local socket: ${apiAnswers.why}`)]
    if (apiAnswers.value) return [ok('the daemon answers on its local socket')]
    const message = `the daemon does not answer on ${path}`
    return [warning(message, 'if it starts still, wait; else it hangs: restart it and keep its log')]
  },
}

const stateDirectory: Check = {
  id: 'state-directory',
  group: 'daemon',
  judge: ({ view, stateProblem }) => {
    const { stateDirectory: path } = view
    if (stateProblem === null) return view.status === null ? [] : [ok(`${path} can be written to`)]
    const message = `${path}: ${stateProblem}: the node cannot remember its lease, and status.json is an old one`
    return [error(message, `make room, or name another --state-dir: df -h ${path}; df -i ${path}; findmnt -T ${path}`)]
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
      return warning(message, dropRemedy(reason))
    })
  },
}

/** Packets that went out before silence means something that the daemon did not see as one, and how long it has to last, milliseconds. */
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
      const message = `packets go to ${peer.publicIp} (${peer.subnet}, ${peer.traffic?.sentPackets} so far) and none has come back since ${since}`
      return warning(message, silenceAdvice(status.node, peer))
    })
  },
}

/** Sending, and nothing comes back: as `status` says, or in the long run. */
function isSilent({ traffic, state }: PeerView): boolean {
  if (state === 'no-answer') return true
  if (traffic == null || traffic.lastSent === null || traffic.sentPackets <= ENOUGH_SENT) return false
  if (traffic.lastReceived === null) return true
  return Date.parse(traffic.lastSent) - Date.parse(traffic.lastReceived) > SILENCE_MS
}

/** The usual reasons and how to tell them apart. */
export function silenceAdvice(node: DaemonStatus['node'], { publicIp: peer } = { publicIp: 'PEER' }): string {
  const port = node?.port ?? 8472
  return [
    `firewall: on ${peer} tcpdump -ni any udp port ${port} sees nothing (one on the way), or flannelette doctor there names the rule (its own)`,
    `hypervisor that takes UDP ${port} for its own VXLAN: plain bytes (echo x | nc -u ${peer} ${port}) arrive there, VXLAN does not; choose another Backend.Port`,
    `another port or VNI there: flannelette doctor on ${peer}`,
    `MTU: flannelette ping ${peer}`,
  ].join('; ')
}

/** Findings of one kind that are shown singly. */
const SHOWN_SINGLY = 8

/** Of thousands of one kind the first ones tell what is wrong. */
function shortened(found: readonly Remark[]): readonly Remark[] {
  const rest = found.length - SHOWN_SINGLY
  if (rest <= 0) return found
  return [...found.slice(0, SHOWN_SINGLY), warning(`and ${rest} more of this kind`, 'flannelette status -o wide')]
}

const peers: Check = {
  id: 'peers',
  group: 'daemon',
  judge: ({ view }) => {
    const { status } = view
    if (status === null || !view.alive) return []
    const leftOut = status.leftOut.map(({ subnet, publicIp, reason, detail }) => {
      const owner = publicIp === '0.0.0.0' ? 'with its owner' : `on ${publicIp}`
      const message = `peer ${publicIp} (${subnet}) is not used: ${reason}: ${detail}`
      return warning(message, `correct it ${owner}, or delete its lease`)
    })
    const conflicts = status.conflicts.map((conflict) =>
      warning(`leases contradict each other: ${conflict}`, 'delete the lease that no running node holds'),
    )
    const pending =
      status.pendingPeers === 0
        ? []
        : [warning(pendingInWords(status.pendingPeers), 'flannelette status names them and why')]
    const all = [...shortened(leftOut), ...shortened(conflicts), ...pending]
    return all.length === 0 ? [ok(`${counted(status.peers.length, 'peer')}, all in use`)] : all
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

export const DAEMON_CHECKS: readonly Check[] = [
  daemon,
  hostView,
  networkNamespace,
  apiSocket,
  stateDirectory,
  drops,
  silence,
  peers,
  offenders,
  duplicateIdentity,
]
