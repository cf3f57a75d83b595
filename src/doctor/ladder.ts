// The way to a node, rung by rung: lease, underlay, VTEP, sizes, pod side. Each rung has a verdict of its own; the
// first that fails is the one to look at. What is asked of the network comes in as tools, so that tests can stand in
// for it.
import { formatPrefix } from '../../dataplane/index.ts'
import { formatSpan } from '../time-span.ts'
import { type Ipv6Way, ipv6WayTo } from './ipv6-way.ts'
import {
  climbDirect,
  climbDirectIpv6,
  directIpv6WayTo,
  directWayTo,
  isDirect,
  pendingRung,
  takesTunnel,
} from './ladder-direct.ts'
import { answered, askUnderlay, echoes, lossAdvice, lossVerdict, podRung, skipped } from './ladder-echo.ts'
import { ofTwo, sizesRung } from './ladder-sizes.ts'
import type { NodeView, PeerView } from './node-view.ts'
import type { LadderOptions, LadderPlace, LadderTools, Rung, RungName, Verdict } from './rung.ts'
import { gatewayAddress, ipv6VtepAddress, type Target, vtepAddress } from './target.ts'

/** Why nobody is asked through the tunnel; a peer is, unless this node's own end is not known. */
const NOTHING_TO_ASK: Readonly<Record<Target['kind'], string>> = {
  peer: 'no daemon has said which device is ours',
  self: 'this node itself',
  'left-out': 'its lease is not used',
  unknown: 'no lease',
}

/** Climbs until a rung fails that the others hang on. Rejects only when the tools themselves cannot work. */
export async function climb(target: Target, view: NodeView, options: LadderOptions): Promise<Rung[]> {
  const rungs: Rung[] = []
  const add = (rung: Rung): Rung => {
    options.signal?.throwIfAborted()
    rungs.push(rung)
    options.onRung?.(rung)
    return rung
  }
  const skip = (names: readonly RungName[], why: string) => {
    for (const name of names) add(skipped(name, why))
  }
  add(storeRung(target, view, options.tools.now()))
  const publicIp = target.kind === 'unknown' || target.kind === 'left-out' ? target.publicIp : target.lease.publicIp
  if (publicIp === null) {
    skip(['underlay', 'vtep', 'sizes', 'pod-side'], 'no node to ask')
    return rungs
  }
  const underlay = await askUnderlay(publicIp, options)
  if (target.kind !== 'peer' || options.place === null) {
    add(underlay)
    skip(['vtep', 'sizes', 'pod-side'], NOTHING_TO_ASK[target.kind])
    return rungs
  }
  const { place } = options
  const past = directIpv6WayTo(target.lease, place)
  if (isDirect(target.lease, place)) {
    for await (const rung of climbDirect(directWayTo(target, place), underlay, options)) add(rung)
    if (past === null) for (const rung of await askIpv6Beside(target.lease, underlay, options, place)) add(rung)
  } else {
    for await (const rung of climbTunnel(target, underlay, past !== null, { ...options, place })) add(rung)
  }
  if (past !== null) for await (const rung of climbDirectIpv6(past, options)) add(rung)
  return rungs
}

/** `isIpv6Past`: IPv6 takes no tunnel, and is not asked here. */
async function* climbTunnel(
  target: Target & { kind: 'peer' },
  underlay: Rung,
  isIpv6Past: boolean,
  options: LadderOptions & { place: LadderPlace },
): AsyncGenerator<Rung> {
  const { lease, subnet } = target
  const { publicIp } = lease
  const { place } = options
  const vtep = await askVtep(publicIp, vtepAddress(subnet), underlay, options, place)
  yield withVtep(underlay, vtep, publicIp, place)
  yield vtep
  if (vtep.verdict === 'bad') {
    for (const name of ['sizes', 'pod-side'] as const) yield skipped(name, 'nothing passes the tunnel')
    return
  }
  const second = isIpv6Past ? null : ipv6WayTo(lease, place)
  const ipv6 = isIpv6Past ? [] : await askIpv6(second, lease, options, place)
  yield* ipv6
  const first = { publicIp, vtep: vtepAddress(subnet), place, rungs: [underlay, vtep] }
  const both = second !== null && takesTunnel(second.subnet, lease)
  const ways: MeasuredWay[] = both ? [first, { ...second, rungs: ipv6 }] : [first]
  for (const way of ways) {
    const rung = await askSizes(way, options)
    yield ways.length === 1 ? rung : ofTwo(rung, way.place)
  }
  yield await podRung({ subnet: formatPrefix(subnet), bridge: gatewayAddress(subnet), publicIp }, options)
}

function storeRung(target: Target, view: NodeView, now: number): Rung {
  const rung = (verdict: Verdict, text: string, next: string | null): Rung => {
    return { name: 'store', verdict, text, averageMs: null, next }
  }
  const see = `flannelette doctor --state-dir ${view.stateDirectory}`
  if (target.kind === 'left-out') {
    return rung('bad', `lease ${target.subnet} of ${target.publicIp} is not used: ${target.why}`, see)
  }
  if (target.kind === 'unknown') {
    const nearest = target.nearest === '' ? '' : `; nearest: ${target.nearest}`
    if (view.status === null && view.peers.length === 0) {
      return rung('bad', `nothing is known of any peer: ${view.stateDirectory}/status.json: ${view.statusProblem}`, see)
    }
    return rung('bad', `no lease covers it${nearest}`, 'is its daemon running, and on the same store and network?')
  }
  const { lease } = target
  const what = `lease ${lease.subnet}, ${lease.publicIp}`
  if (target.kind === 'self') return rung('bad', `${what} is this node's own`, 'name another node')
  const left = lease.expiresAt === null ? null : Date.parse(lease.expiresAt) - now
  if (left !== null && left <= 0) {
    return rung('bad', `${what} expired ${formatSpan(-left)} ago`, `is the daemon on ${lease.publicIp} running?`)
  }
  const until = left === null ? 'never expires' : `for ${formatSpan(left)} more`
  if (view.status === null) return rung('warning', `${what}, as a former daemon kept it (${until})`, see)
  if (!view.alive) return rung('warning', `${what}, as of ${view.status.since}: the daemon does not run`, see)
  if (view.answers === false) {
    return rung('warning', `${what}, as of ${view.status.since}: the daemon runs, but does not answer`, see)
  }
  return rung('good', `${what}, ${until}`, null)
}

/** Silence on the underlay proves something once the tunnel is silent as well. */
function withVtep(underlay: Rung, vtep: Rung, publicIp: string, place: LadderPlace): Rung {
  if (underlay.verdict !== 'unproven' || vtep.verdict !== 'bad') return underlay
  return { ...underlay, verdict: 'bad', next: silentUnderlay(publicIp, place) }
}

function silentUnderlay(publicIp: string, { underlayInterface, port }: LadderPlace): string {
  return `neither ICMP nor the tunnel answers: is ${publicIp} up? tcpdump -ni ${underlayInterface} 'host ${publicIp} and (${publicIp.includes(':') ? 'icmp6' : 'icmp'} or udp port ${port})'`
}

async function askVtep(
  publicIp: string,
  address: string,
  underlay: Rung,
  options: LadderOptions,
  place: LadderPlace,
): Promise<Rung> {
  const { port, underlayInterface } = place
  const { tools } = options
  const result = await echoes(address, options)
  const text = `ICMP ${address} through the tunnel: `
  if (result.received > 0) {
    const next = lossAdvice(result, publicIp)
    const [verdict, averageMs] = [lossVerdict(result), result.averageMs]
    return { name: 'vtep', verdict, text: text + answered(result), averageMs, next }
  }
  const advice =
    (await strayRoute(address, tools, place)) ??
    (underlay.verdict === 'bad'
      ? 'see the underlay first'
      : `on ${publicIp}: tcpdump -ni any udp port ${port}; nothing seen there: a firewall or a hypervisor takes UDP ${port} (here: tcpdump -ni ${underlayInterface} udp port ${port}); seen: its own firewall, VNI, VTEP MAC, source check (flannelette doctor there)`)
  const said = result.refusal === '' ? 'no answer' : result.refusal
  return { name: 'vtep', verdict: 'bad', text: text + said, averageMs: null, next: advice }
}

/** What to do when this host sends packets to an address past the tunnel; `null` when it does not. */
async function strayRoute(address: string, tools: LadderTools, place: LadderPlace): Promise<string | null> {
  const own = (address.includes(':') ? place.ipv6Tunnel?.device : null) ?? place.overlayDevice
  const device = (await tools.hopTo(address))?.device ?? null
  if (device === own) return null
  const what = device === null ? `there is no route to ${address}` : `a route takes it to ${device}`
  return `${what}, not into ${own}: ip route get ${address}; flannelette doctor names the route`
}

/**
 * IPv6 of the pods, where both nodes have it: by the way of IPv4, which has answered by now, or by a tunnel of its own over
 * an underlay of its own: two rungs then.
 */
async function askIpv6(
  second: Ipv6Way | null,
  lease: PeerView,
  options: LadderOptions,
  place: LadderPlace,
): Promise<Rung[]> {
  const pending = place.ipv6 ? pendingRung('vtep-ipv6', lease.ipv6Subnet, lease) : null
  if (pending !== null) return [pending]
  if (second === null) {
    const address = place.ipv6 ? ipv6VtepAddress(lease) : null
    return address === null ? [] : [await askIpv6Vtep(address, lease, null, options, place)]
  }
  const underlay = await askUnderlay(second.publicIp, options, 'underlay-ipv6')
  const vtep = await askIpv6Vtep(second.vtep, lease, underlay, options, place)
  return [withVtep(underlay, vtep, second.publicIp, place), vtep]
}

/**
 * IPv6 of a peer that IPv4 reaches past the tunnel may take it all the same: one of its own, or that of IPv4, which nothing
 * has been asked through by then.
 */
async function askIpv6Beside(
  lease: PeerView,
  underlay: Rung,
  options: LadderOptions,
  place: LadderPlace,
): Promise<Rung[]> {
  const pending = place.ipv6 ? pendingRung('route-ipv6', lease.ipv6Subnet, lease) : null
  if (pending !== null) return [pending]
  const vtep = ipv6VtepAddress(lease)
  if (place.overlayDevice === '' || vtep === null || !takesTunnel(lease.ipv6Subnet ?? '', lease)) return []
  const second = ipv6WayTo(lease, place)
  const rungs = await askIpv6(second, lease, options, place)
  if (rungs.length === 0) return []
  const way = second ?? { vtep, publicIp: lease.publicIp, place }
  const sizes = await askSizes({ ...way, rungs: second === null ? [underlay, ...rungs] : rungs }, options)
  return [...rungs, sizes.verdict === 'skipped' ? sizes : ofTwo(sizes, way.place)].map((rung) => {
    return rung.name === 'sizes' ? { ...rung, name: 'sizes-ipv6' } : rung
  })
}

/** A tunnel and the rungs below its sizes: underlay and VTEP. */
interface MeasuredWay extends Pick<Ipv6Way, 'vtep' | 'publicIp' | 'place'> {
  readonly rungs: readonly Rung[]
}

async function askSizes({ vtep, publicIp, place, rungs }: MeasuredWay, options: LadderOptions): Promise<Rung> {
  if (rungs.some(({ name, verdict }) => name.startsWith('vtep') && verdict === 'bad')) {
    return skipped('sizes', 'nothing passes the tunnel')
  }
  const underlayAnswers = rungs.every(({ verdict }) => verdict !== 'unproven')
  return sizesRung({ vtep, publicIp, underlayAnswers }, place, options)
}

async function askIpv6Vtep(
  address: string,
  lease: PeerView,
  underlay: Rung | null,
  options: LadderOptions,
  place: LadderPlace,
): Promise<Rung> {
  const { publicIp, publicIpv6 = null } = lease
  const result = await echoes(address, options)
  const text = `ICMP ${address} through the tunnel: `
  if (result.received > 0) {
    const [verdict, averageMs] = [lossVerdict(result), result.averageMs]
    return { name: 'vtep-ipv6', verdict, text: text + answered(result), averageMs, next: lossAdvice(result, publicIp) }
  }
  const [isPast, capture] = [isDirect(lease, place), `on ${publicIp}: tcpdump -ni any`]
  const alone = isPast
    ? `IPv4 goes past the tunnel, and IPv6 needs it: ${capture} udp port ${place.port}`
    : `IPv4 passes, so look at IPv6 on ${publicIp}: ip -6 address show ${place.overlayDevice}; ip6tables -S INPUT`
  const other = isPast ? 'IPv4 goes past its tunnel' : 'the tunnel over IPv4 passes'
  const there =
    underlay === null
      ? alone
      : `${other}, that over IPv6 does not pass: ping ${publicIpv6}; ${capture} ip6 and udp port ${place.port}`
  const seeFirst = underlay?.verdict === 'bad' ? 'see the underlay over IPv6 first; ' : ''
  const next = (await strayRoute(address, options.tools, place)) ?? seeFirst + there
  const said = result.refusal === '' ? 'no answer' : result.refusal
  return { name: 'vtep-ipv6', verdict: 'bad', text: text + said, averageMs: null, next }
}
