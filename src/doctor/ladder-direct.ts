// The way to a peer that is reached without a tunnel, of either family: the host itself, the route that leads there, the
// sizes of the link, the pods' bridge.
import { parseIpv6, parseIpv6Prefix } from '../../dataplane/index.ts'
import type { EchoOptions } from '../host/echo.ts'
import { UNDERLAY_GONE } from '../host/pending.ts'
import { foreignRouteIn, isNoNeighbour } from '../host/route-place.ts'
import { ipv6EndOf } from './ipv6-way.ts'
import { askUnderlay, type PodSide, podRung, skipped } from './ladder-echo.ts'
import { measure } from './mtu-ruler.ts'
import type { PeerView } from './node-view.ts'
import type { LadderOptions, LadderPlace, Rung, RungName } from './rung.ts'
import { gatewayAddress, type Target } from './target.ts'

/** An answer that takes longer counts as lost, milliseconds. */
const WAIT_MS = 800
const TRIES = 3

/** How a subnet of a peer is reached, as the daemon says; `null` where there is only the tunnel. */
function wayTo(subnet: string, { ways }: Pick<PeerView, 'ways'>) {
  return ways?.find((one) => one.subnet === subnet) ?? null
}

/** Whether packets to a subnet of a peer take the tunnel, where there is one. */
export function takesTunnel(subnet: string, peer: Pick<PeerView, 'ways'>): boolean {
  return (wayTo(subnet, peer)?.way ?? 'tunnel') === 'tunnel'
}

/** Whether no tunnel is asked: the backend has none, goes past it, or is kept from leading there. */
export function isDirect(peer: Pick<PeerView, 'subnet' | 'ways'>, place: LadderPlace): boolean {
  return place.overlayDevice === '' || !takesTunnel(peer.subnet, peer)
}

/** One family's way to a peer past the tunnel. */
export interface DirectWay extends Required<PodSide> {
  readonly routeRung: RungName
  readonly sizesRung: RungName
  readonly peer: PeerView
  /** This node's end, with what pods of that family send. */
  readonly place: LadderPlace
}

/** That of the subnet which the peer goes by. */
export function directWayTo({ lease: peer, subnet }: Target & { kind: 'peer' }, place: LadderPlace): DirectWay {
  const names = { routeRung: 'route', sizesRung: 'sizes', podRung: 'pod-side' } as const
  return { subnet: peer.subnet, publicIp: peer.publicIp, bridge: gatewayAddress(subnet), peer, place, ...names }
}

/**
 * That of IPv6 beside IPv4; `null` where there is none, or by a tunnel. A pending one counts where IPv4 has no tunnel
 * either: there is none to ask for it.
 */
export function directIpv6WayTo(peer: PeerView, place: LadderPlace): DirectWay | null {
  const { ipv6Subnet: text, publicIpv6: publicIp = null, ways } = peer
  const subnet = parseIpv6Prefix(text ?? '')
  if (!place.ipv6 || text === null || subnet === null || text === peer.subnet || publicIp === null) return null
  const isPast = isDirect({ subnet: text, ...(ways === undefined ? {} : { ways }) }, place)
  if (!isPast || (wayTo(text, peer)?.way === 'none' && !isDirect(peer, place))) return null
  const names = { routeRung: 'route-ipv6', sizesRung: 'sizes-ipv6', podRung: 'pod-side-ipv6' } as const
  const bridge = gatewayAddress(subnet)
  return { subnet: text, publicIp, bridge, peer, place: ipv6EndOf(place) ?? place, ...names }
}

/** Rungs of that of IPv6, its underlay first. The tunnel's port is IPv4's to ask for. */
export async function* climbDirectIpv6(way: DirectWay, options: LadderOptions): AsyncGenerator<Rung> {
  const underlay = await askUnderlay(way.publicIp, { ...options, place: null }, 'underlay-ipv6')
  yield* climbDirect(way, underlay, options)
}

/** Rungs of one, each as it is known. */
export async function* climbDirect(way: DirectWay, underlay: Rung, options: LadderOptions): AsyncGenerator<Rung> {
  yield underlay
  const route = await routeRung(way, options)
  yield route
  if (route.verdict === 'bad') {
    for (const name of [way.sizesRung, way.podRung]) yield skipped(name, 'no packet gets there')
    return
  }
  const isSilent = underlay.verdict === 'unproven'
  if (isSilent || underlay.verdict === 'bad') yield skipped(way.sizesRung, 'the host itself does not answer')
  else yield await linkSizesRung(way, options)
  yield await podRung(way, options, isSilent ? silenceAdvice(way) : '')
}

/** Silence of the host proves something once its pods are silent as well. */
function silenceAdvice({ publicIp, place }: DirectWay): string {
  const [filter, protocol] = publicIp.includes(':') ? ['ip6tables', 'icmp6'] : ['iptables', 'icmp']
  const capture = `tcpdump -ni ${place.underlayInterface} 'host ${publicIp} and ${protocol}'`
  return `the host has not answered either: is it up? ip neigh show to ${publicIp}; what drops ICMP? ${capture}; ${filter} -S INPUT there; `
}

async function routeRung(
  { routeRung: name, subnet, publicIp, bridge: address, peer, place: { underlayInterface } }: DirectWay,
  { tools }: Pick<LadderOptions, 'tools'>,
): Promise<Rung> {
  const rung = (verdict: Rung['verdict'], text: string, next: string | null = null): Rung => {
    return { name, verdict, text, averageMs: null, next }
  }
  const pending = pendingRung(name, subnet, peer, publicIp)
  if (pending !== null) return pending
  const way = wayTo(subnet, peer)
  const hop = await tools.hopTo(address)
  if (hop?.device === underlayInterface && isSameAddress(hop.gateway, publicIp)) {
    const whose = way === null || way.why === '' ? '' : ` (${way.why})`
    return rung('good', `${subnet} by way of ${publicIp} on ${hop.device}, without a tunnel${whose}`)
  }
  const via = hop === null || hop.gateway === null ? '' : `${hop.gateway} on `
  const what = hop === null ? `there is no route to ${address}` : `a route takes ${address} to ${via}${hop.device}`
  const see = `ip route get ${address}; the daemon puts its route back within seconds: is it running?`
  return rung('bad', `${what}, not by way of ${publicIp} on ${underlayInterface}`, see)
}

/** IPv6 has many ways to write one. */
function isSameAddress(one: string | null, other: string): boolean {
  return one === other || (one !== null && parseIpv6(one) !== null && parseIpv6(one) === parseIpv6(other))
}

/** A rung that cannot hold, since this node sends nothing to that subnet of a peer; `null` where it does. */
export function pendingRung(
  name: RungName,
  subnet: string | null,
  peer: PeerView,
  publicIp = peer.publicIp,
): Rung | null {
  const known = wayTo(subnet ?? '', peer)
  if (known?.way !== 'none') return null
  const next = pendingAdvice(known.why, publicIp)
  return { name, verdict: 'bad', text: `${subnet} is pending: ${known.why}`, averageMs: null, next }
}

/** What to do about a subnet that packets do not get to as they should, by the reason. */
export function pendingAdvice(why: string, publicIp: string): string {
  const foreign = foreignRouteIn(why)
  if (foreign !== null) return `does anything need it? else: ip route delete ${foreign}, and ours takes its place`
  if (why === UNDERLAY_GONE) return 'the daemon goes on once it is back, or another one is there: ip address show'
  if (!isNoNeighbour(why)) return 'the daemon tries it again by itself; its log tells of each change'
  return `is ${publicIp} on the same link? ip route get ${publicIp}; nodes behind routers need a tunnel: Backend.Type "vxlan", with DirectRouting for neighbours`
}

/** Packets of pods are as large as the link takes: asked of the host itself, whose pods may not be there yet. */
async function linkSizesRung(
  { sizesRung: name, publicIp, place: { underlayMtuBytes: expected, overlayMtuBytes: pods } }: DirectWay,
  { tools, signal }: Pick<LadderOptions, 'tools' | 'signal'>,
): Promise<Rung> {
  const result = await measure(
    expected,
    async (packetBytes) => {
      const whole = { packetBytes, dontFragment: true, anyAnswer: true }
      const options: EchoOptions = { count: TRIES, intervalMs: 50, waitMs: WAIT_MS, ...whole }
      const answer = await tools.echo(publicIp, signal === undefined ? options : { ...options, signal })
      return { passes: answer.received > 0, limitBytes: answer.tooBig?.limitBytes ?? null }
    },
    signal,
  )
  const largest = result.largestBytes ?? 0
  const rung = (verdict: Rung['verdict'], text: string, next: string | null = null): Rung => {
    return { name, verdict, text, averageMs: null, next }
  }
  const what = largest === 0 ? 'nothing large passes' : `${largest} passes`
  if (largest >= expected) return rung('good', `${what}, all that the link should take; pods send up to ${pods}`)
  const text = `${what} of the link's ${expected}; pods send up to ${pods}`
  return rung(largest < pods ? 'bad' : 'warning', text, `what is between? tracepath -n -l ${expected} ${publicIp}`)
}
