// `doctor --peers`: the same four questions to every peer, several peers at a time, and what their answers mean.
import type { DaemonStatus, LeaseStatus } from '../daemon/status-file.ts'
import type { EchoOptions } from '../host/echo.ts'
import { silenceAdvice } from './checks/daemon.ts'
import { docsOf, error, type Finding, note, type Remark, warning } from './finding.ts'
import { holeAdvice, toAnswer } from './ladder-sizes.ts'
import { measure, type RulerResult } from './mtu-ruler.ts'
import type { NodeView } from './node-view.ts'
import type { LadderPlace, LadderTools } from './rung.ts'
import { answeringAddress, ipv6VtepAddress } from './target.ts'

export interface PeerRow {
  readonly publicIp: string
  readonly subnet: string
  /** Whether its UDP port is refused: nobody listens. */
  readonly refused: boolean
  /** Average round trips in milliseconds, `null` without an answer. */
  readonly underlayMs: number | null
  readonly vtepMs: number | null
  /** The same for IPv6 beside IPv4; absent where one of both nodes has none. */
  readonly ipv6Ms?: number | null
  /** Whether a packet as large as the overlay's MTU passes whole, and one half as large again when it may be cut. */
  readonly whole: boolean
  readonly fragmented: boolean
  /** What was found out of a size that does not pass whole; absent where it does, or nothing passes the tunnel. */
  readonly sizes?: RulerResult
}

/** Peers asked at the same time. */
const PARALLEL = 8
const TRIES = 2
const WAIT_MS = 1000

/** Asks every peer that the status (or the kept leases) names; without a place there is no tunnel to ask through. */
export async function askPeers(view: NodeView, place: LadderPlace, tools: LadderTools): Promise<PeerRow[]> {
  const rows: PeerRow[] = []
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

async function askPeer(
  peer: Pick<LeaseStatus, 'publicIp' | 'subnet' | 'ipv6Subnet'>,
  { overlayMtuBytes, overlayDevice, port, ipv6: hasIpv6 }: LadderPlace,
  { echo, askUdpPort }: LadderTools,
): Promise<PeerRow> {
  const { publicIp, subnet } = peer
  const ipv6Vtep = hasIpv6 && overlayDevice !== '' ? ipv6VtepAddress(peer) : null
  const ask = (address: string, more: Partial<EchoOptions> = {}) =>
    echo(address, { count: TRIES, waitMs: WAIT_MS, intervalMs: 100, ...more })
  const vtep = answeringAddress(peer, overlayDevice)
  const [udp, underlay, tunnel, whole, fragmented, ipv6] = await Promise.all([
    port === 0 ? 'silent' : askUdpPort(publicIp, port),
    ask(publicIp),
    ask(vtep),
    ask(vtep, { packetBytes: overlayMtuBytes, dontFragment: true }),
    ask(vtep, { packetBytes: Math.floor(overlayMtuBytes * 1.5) }),
    ipv6Vtep === null ? null : ask(ipv6Vtep),
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
    ...(ipv6 === null ? {} : { ipv6Ms: ipv6.averageMs }),
    whole: whole.received > 0 || sizes?.largestBytes === overlayMtuBytes,
    // Two late answers are no hole.
    ...(sizes !== null && sizes.largestBytes !== overlayMtuBytes ? { sizes } : {}),
    fragmented: fragmented.received > 0,
  }
}

/** Packets of the overlay's MTU do not reach a peer: somebody says so, or they vanish. */
function holeIn({ sizes, publicIp }: PeerRow, name: string, place: LadderPlace): Remark {
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

/** What the rows mean: one finding for each peer that is not well. */
export function judgePeers(rows: readonly PeerRow[], node: DaemonStatus['node'], place: LadderPlace): Finding[] {
  const unwell = rows.flatMap((row): Remark[] => {
    const name = `${row.publicIp} (${row.subnet})`
    const ping = `flannelette ping ${row.publicIp}`
    if (row.refused) {
      return [
        error(
          `${name} refuses UDP: nothing listens there`,
          `on ${row.publicIp}: is the daemon running? flannelette doctor`,
        ),
      ]
    }
    if (row.vtepMs === null && row.underlayMs === null) {
      return [error(`${name} answers neither ICMP nor through the tunnel`, `is it up? ${ping}`)]
    }
    if (row.vtepMs === null) {
      const message = `${name} answers ICMP, but nothing comes back through the tunnel`
      return [error(message, silenceAdvice(node, row))]
    }
    if (row.ipv6Ms === null) return [error(`${name} is reached by IPv4, but not by IPv6`, ping)]
    if (!row.whole) return [holeIn(row, name, place)]
    if (!row.fragmented) {
      return [warning(`${name} does not get packets that are cut in two`, 'does a firewall on the way drop fragments?')]
    }
    if (row.underlayMs === null) return [note(`${name} does not answer ICMP on the underlay; the tunnel works`)]
    return []
  })
  return unwell.map((remark) => ({ check: 'peer-matrix', group: 'peers', ...remark, docs: docsOf('peer-matrix') }))
}
