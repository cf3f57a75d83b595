// The quick look of plain `doctor` for a hole in the MTU: a few peers, small packets and those of full size at the same
// time. What passes is not measured here; `doctor --peers` and `ping NODE` do that.
import type { EchoOptions } from '../host/echo.ts'
import { ipv6WayTo } from './ipv6-way.ts'
import { toAnswer } from './ladder-sizes.ts'
import type { NodeView, PeerView } from './node-view.ts'
import type { LadderPlace, LadderTools } from './rung.ts'
import { answeringAddress } from './target.ts'

/** One way to a peer; of a node with a tunnel of each family there are two. */
interface Way {
  readonly publicIp: string
  readonly subnet: string
  /** Who is asked. */
  readonly address: string
  /** Length of the large packet, the MTU of the way, bytes. */
  readonly bytes: number
}

export interface SizeLook extends Way {
  readonly smallPasses: boolean
  readonly largePasses: boolean
  /** What somebody named as the limit, bytes; `null` for silence. */
  readonly limitBytes: number | null
}

/** Peers that are asked, all at the same time. */
export const PEERS_ASKED = 4

/** Two looks, the most there are, take less than two seconds. */
const SERIES = { count: 3, intervalMs: 100, waitMs: 700, anyAnswer: true } as const

/** Never longer than two seconds. @throws FlanneletteError `host-command`, `not-permitted` when ping itself cannot work */
export function lookAtLargePackets(
  view: NodeView,
  place: LadderPlace,
  { echo }: Pick<LadderTools, 'echo'>,
): Promise<SizeLook[]> {
  const ways = peersToAsk(view.peers).flatMap((peer) => waysTo(peer, place))
  return Promise.all(ways.map((way) => lookAt(way, echo)))
}

/** Where something came from lately first; then those of whom less is known, but nobody who is known not to answer. */
const ORDER = ['active', 'sending', null, 'idle'] as const

function peersToAsk(peers: readonly PeerView[]): PeerView[] {
  const inOrder = ORDER.flatMap((state) => peers.filter((peer) => (peer.state ?? null) === state))
  return inOrder.slice(0, PEERS_ASKED)
}

function waysTo(peer: PeerView, place: LadderPlace): Way[] {
  const { publicIp, subnet } = peer
  const address = answeringAddress(peer, place.overlayDevice)
  const first = { publicIp, subnet, address, bytes: place.overlayMtuBytes }
  const second = ipv6WayTo(peer, place)
  if (second === null) return [first]
  const { vtep, place: end } = second
  return [first, { publicIp: second.publicIp, subnet: second.subnet, address: vtep, bytes: end.overlayMtuBytes }]
}

async function lookAt(way: Way, echo: LadderTools['echo']): Promise<SizeLook> {
  const look = async (): Promise<SizeLook> => {
    const large: EchoOptions = { ...SERIES, packetBytes: way.bytes, dontFragment: true }
    const answers = await Promise.all([echo(way.address, SERIES), echo(way.address, large)])
    const [small, { passes: largePasses, limitBytes }] = [toAnswer(answers[0]), toAnswer(answers[1])]
    return { ...way, smallPasses: small.passes, largePasses, limitBytes }
  }
  const seen = await look()
  // On a busy host a whole series may be late.
  return isHole(seen) ? look() : seen
}

/** Small packets are answered, large ones are not, and nobody says why. */
export function isHole({ smallPasses, largePasses, limitBytes }: SizeLook): boolean {
  return smallPasses && !largePasses && limitBytes === null
}
