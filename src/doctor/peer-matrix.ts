// `doctor --peers`: the same questions to every peer and by each tunnel to it, several peers at a time, and what their
// answers mean.
import type { DaemonStatus } from '../daemon/status-file.ts'
import type { EchoOptions } from '../host/echo.ts'
import { silenceAdvice } from './checks/daemon.ts'
import { docsOf, error, type Finding, note, type Remark, warning } from './finding.ts'
import { type Ipv6Way, ipv6EndOf, ipv6WayTo } from './ipv6-way.ts'
import { holeAdvice, toAnswer } from './ladder-sizes.ts'
import { measure, type RulerResult } from './mtu-ruler.ts'
import type { NodeView, PeerView } from './node-view.ts'
import type { LadderPlace, LadderTools } from './rung.ts'
import { answeringAddress, ipv6VtepAddress } from './target.ts'

/** What was found out of one tunnel to a peer. */
export interface TunnelRow {
  readonly publicIp: string
  readonly subnet: string
  /** Whether its UDP port is refused: nobody listens. */
  readonly refused: boolean
  /** Average round trips in milliseconds, `null` without an answer. */
  readonly underlayMs: number | null
  readonly vtepMs: number | null
  /** Whether a packet as large as the overlay's MTU passes whole, and one half as large again when it may be cut. */
  readonly whole: boolean
  readonly fragmented: boolean
  /** What was found out of a size that does not pass whole; absent where it does, or nothing passes the tunnel. */
  readonly sizes?: RulerResult
}

export interface MatrixRow extends TunnelRow {
  /** Round trip by IPv6 beside IPv4, by whichever tunnel; absent where one of both nodes has none. */
  readonly ipv6Ms?: number | null
  /** Of the tunnel between IPv6 addresses beside that over IPv4; absent where one of both nodes has none. */
  readonly ipv6Tunnel?: TunnelRow
}

/** Peers asked at the same time. */
const PARALLEL = 8
const SERIES = { count: 2, waitMs: 1000, intervalMs: 100, anyAnswer: true } as const

/** Asks every peer that the status (or the kept leases) names; without a place there is no tunnel to ask through. */
export async function askPeers(view: NodeView, place: LadderPlace, tools: LadderTools): Promise<MatrixRow[]> {
  const rows: MatrixRow[] = []
  let next = 0
  const worker = async () => {
    for (let index = next++; index < view.peers.length; index = next++) {
      const peer = view.peers[index]!
      rows[index] = await askPeer(peer, place, tools)
    }
  }
  await Promise.all(Array.from({ length: PARALLEL }, worker))
  return rows
}

async function askPeer(peer: PeerView, place: LadderPlace, tools: LadderTools): Promise<MatrixRow> {
  const { publicIp, subnet } = peer
  const way = { publicIp, subnet, vtep: answeringAddress(peer, place.overlayDevice) }
  const second = ipv6WayTo(peer, place)
  if (second !== null) {
    const [row, ipv6Tunnel] = await Promise.all([askWay(way, place, tools), askWay(second, second.place, tools)])
    return { ...row, ipv6Ms: ipv6Tunnel.vtepMs, ipv6Tunnel }
  }
  // By the tunnel of IPv4 packets of IPv6 are no different.
  const ipv6Vtep = place.ipv6 && place.overlayDevice !== '' ? ipv6VtepAddress(peer) : null
  const ipv6 = ipv6Vtep === null ? null : tools.echo(ipv6Vtep, SERIES)
  const [row, answer] = await Promise.all([askWay(way, place, tools), ipv6])
  return answer === null ? row : { ...row, ipv6Ms: answer.averageMs }
}

async function askWay(
  { publicIp, subnet, vtep }: Pick<Ipv6Way, 'publicIp' | 'subnet' | 'vtep'>,
  { overlayMtuBytes, port }: LadderPlace,
  { echo, askUdpPort }: LadderTools,
): Promise<TunnelRow> {
  const ask = (address: string, more: Partial<EchoOptions> = {}) => echo(address, { ...SERIES, ...more })
  const [udp, underlay, tunnel, whole, fragmented] = await Promise.all([
    port === 0 ? 'silent' : askUdpPort(publicIp, port),
    ask(publicIp),
    ask(vtep),
    ask(vtep, { packetBytes: overlayMtuBytes, dontFragment: true }),
    ask(vtep, { packetBytes: Math.floor(overlayMtuBytes * 1.5), dontFragment: false }),
  ])
  const holed = tunnel.received > 0 && whole.received === 0
  const askSize = async (packetBytes: number) => toAnswer(await ask(vtep, { packetBytes, dontFragment: true }))
  const sizes = holed ? await measure(overlayMtuBytes, askSize) : null
  return {
    publicIp,
    subnet,
    refused: udp === 'refused',
    underlayMs: underlay.averageMs,
    vtepMs: tunnel.averageMs,
    whole: whole.received > 0 || sizes?.largestBytes === overlayMtuBytes,
    // Two late answers are no hole.
    ...(sizes !== null && sizes.largestBytes !== overlayMtuBytes ? { sizes } : {}),
    fragmented: fragmented.received > 0,
  }
}

/** Packets of the overlay's MTU do not reach a peer: somebody says so, or they vanish. */
function holeIn({ sizes, publicIp }: TunnelRow, name: string, place: LadderPlace): Remark {
  const { largestBytes: largest, namedBytes } = sizes ?? { largestBytes: null, namedBytes: null }
  const whole = place.overlayMtuBytes
  const ping = `flannelette ping ${publicIp}`
  if (largest === null) return error(`${name} gets small packets only: there is a hole in the MTU`, ping)
  if (place.outerDf === 'set' && largest === namedBytes) {
    return note(`${name} takes packets of pods up to ${largest} of ${whole} bytes; pods are told`, ping)
  }
  const message = `${name} gets packets of pods up to ${largest} bytes, those of ${largest + 1} to ${whole} vanish: there is a hole in the MTU`
  return error(message, `${holeAdvice(place, largest)}; ${ping}`)
}

/** What the rows mean: one finding for each tunnel that is not well, and for a peer that is gone altogether. */
export function judgePeers(rows: readonly MatrixRow[], node: DaemonStatus['node'], place: LadderPlace): Finding[] {
  const unwell = rows.flatMap((row): Remark[] => {
    const { ipv6Tunnel } = row
    const found = judgeTunnel(row, node, place)
    if (ipv6Tunnel !== undefined) {
      return isGone(row) && isGone(ipv6Tunnel)
        ? found
        : [...found, ...judgeTunnel(ipv6Tunnel, node, ipv6EndOf(place) ?? place)]
    }
    if (row.vtepMs === null || row.ipv6Ms !== null) return found
    const { publicIp, subnet } = row
    return [error(`${publicIp} (${subnet}) is reached by IPv4, but not by IPv6`, `flannelette ping ${publicIp}`)]
  })
  return unwell.map((remark) => ({ check: 'peer-matrix', group: 'peers', ...remark, docs: docsOf('peer-matrix') }))
}

/** Nobody is there, or nobody listens. */
function isGone({ refused, vtepMs, underlayMs }: TunnelRow): boolean {
  return refused || (vtepMs === null && underlayMs === null)
}

function judgeTunnel(row: TunnelRow, node: DaemonStatus['node'], place: LadderPlace): Remark[] {
  const name = `${row.publicIp} (${row.subnet})`
  if (row.refused) {
    const remedy = `on ${row.publicIp}: is the daemon running? flannelette doctor`
    return [error(`${name} refuses UDP: nothing listens there`, remedy)]
  }
  if (isGone(row)) {
    return [error(`${name} answers neither ICMP nor through the tunnel`, `is it up? flannelette ping ${row.publicIp}`)]
  }
  if (row.vtepMs === null) {
    const message = `${name} answers ICMP, but nothing comes back through the tunnel`
    return [error(message, silenceAdvice(node, row))]
  }
  if (!row.whole) return [holeIn(row, name, place)]
  if (!row.fragmented) {
    return [warning(`${name} does not get packets that are cut in two`, 'does a firewall on the way drop fragments?')]
  }
  if (row.underlayMs === null) return [note(`${name} does not answer ICMP on the underlay; the tunnel works`)]
  return []
}
