// Rungs of the way to a peer that is reached without a tunnel: the route that leads there, and the sizes of the link.
import type { EchoOptions } from '../host/echo.ts'
import { UNDERLAY_GONE } from '../host/pending.ts'
import { foreignRouteIn, isNoNeighbour } from '../host/route-place.ts'
import { measure } from './mtu-ruler.ts'
import type { PeerView } from './node-view.ts'
import type { LadderOptions, LadderPlace, Rung, RungName } from './rung.ts'

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

/** `address`: one in the peer's subnet, that its route leads to. */
export async function routeRung(
  peer: PeerView,
  address: string,
  { underlayInterface }: LadderPlace,
  { tools }: Pick<LadderOptions, 'tools'>,
): Promise<Rung> {
  const rung = (verdict: Rung['verdict'], text: string, next: string | null = null): Rung => {
    return { name: 'route', verdict, text, averageMs: null, next }
  }
  const pending = pendingRung('route', peer.subnet, peer)
  if (pending !== null) return pending
  const way = wayTo(peer.subnet, peer)
  const device = await tools.deviceTo(address)
  if (device === underlayInterface) {
    const whose = way === null || way.why === '' ? '' : ` (${way.why})`
    return rung('good', `${peer.subnet} by way of ${peer.publicIp} on ${device}, without a tunnel${whose}`)
  }
  const what = device === null ? `there is no route to ${address}` : `a route takes ${address} to ${device}`
  const see = `ip route get ${address}; the daemon puts its route back within seconds: is it running?`
  return rung('bad', `${what}, not by way of ${peer.publicIp} on ${underlayInterface}`, see)
}

/** A rung that cannot hold, since this node sends nothing to that subnet of a peer; `null` where it does. */
export function pendingRung(name: RungName, subnet: string | null, peer: PeerView): Rung | null {
  const known = wayTo(subnet ?? '', peer)
  if (known?.way !== 'none') return null
  const next = pendingAdvice(known.why, peer.publicIp)
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
export async function linkSizesRung(
  publicIp: string,
  { underlayMtuBytes: expected, overlayMtuBytes: pods }: LadderPlace,
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
    return { name: 'sizes', verdict, text, averageMs: null, next }
  }
  const what = largest === 0 ? 'nothing large passes' : `${largest} passes`
  if (largest >= expected) return rung('good', `${what}, all that the link should take; pods send up to ${pods}`)
  const text = `${what} of the link's ${expected}; pods send up to ${pods}`
  return rung(largest < pods ? 'bad' : 'warning', text, `what is between? tracepath -n -l ${expected} ${publicIp}`)
}
