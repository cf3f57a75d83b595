// The rung of sizes: the largest packet that the tunnel and the underlay pass whole, set against what they should.
import { smallestOverlayBytes } from '../config/mtu.ts'
import type { EchoOptions, EchoResult } from '../host/echo.ts'
import { measure, type RulerResult, type SizeAnswer, SMALLEST_BYTES } from './mtu-ruler.ts'
import type { LadderOptions, LadderPlace, Rung } from './rung.ts'

export interface SizesTarget {
  readonly vtep: string
  readonly publicIp: string
  /** Whether ICMP to the public address is answered at all. */
  readonly underlayAnswers: boolean
}

/** An answer that takes longer counts as lost, milliseconds: the rung before has shown that answers come. */
const WAIT_MS = 800
/** So that one lost packet makes no hole. */
const TRIES = 3

/** Measures tunnel and underlay at the same time and judges both. @throws the reason of `signal` when that aborts */
export async function sizesRung(
  { vtep, publicIp, underlayAnswers }: SizesTarget,
  place: LadderPlace,
  { tools, signal }: Pick<LadderOptions, 'tools' | 'signal'>,
): Promise<Rung> {
  const ask = (address: string) => async (packetBytes: number) => {
    const whole = { packetBytes, dontFragment: true, anyAnswer: true }
    const options: EchoOptions = { count: TRIES, intervalMs: 50, waitMs: WAIT_MS, ...whole }
    return toAnswer(await tools.echo(address, signal === undefined ? options : { ...options, signal }))
  }
  const { overlayMtuBytes: expected, underlayMtuBytes } = place
  const [tunnel, above, underlay] = await Promise.all([
    measure(expected, ask(vtep), signal),
    ask(vtep)(expected + 1),
    underlayAnswers ? measure(underlayMtuBytes, ask(publicIp), signal) : null,
  ])
  return judgeSizes(place, tunnel, above, underlay)
}

/** The rung of one tunnel where there are two. */
export function ofTwo(rung: Rung, { underlayFamily }: LadderPlace): Rung {
  const name = underlayFamily === 'IPv6' ? 'sizes-ipv6' : 'sizes'
  return { ...rung, name, text: `over ${underlayFamily}: ${rung.text}` }
}

/** An echo as the ruler sees it: one answer of several is enough to say that the size passes. */
export function toAnswer({ received, tooBig }: EchoResult): SizeAnswer {
  return { passes: received > 0, limitBytes: tooBig?.limitBytes ?? null }
}

/** What to do where larger packets just vanish. `largest`: of pods, in bytes, that pass. */
export function holeAdvice(place: LadderPlace, largest: number): string {
  const passes = largest + place.overheadBytes
  const set = passes < leastUnderlayBytes(place) ? '' : `set Backend.MTU to ${passes} on all nodes, or `
  return `the underlay seems to pass ${passes}: ${set}find what drops larger UDP${unlessTold(place)}`
}

/** `limit`: what the path takes, in bytes. */
function pathAdvice(place: LadderPlace, limit: number): string {
  const { underlayMtuBytes: whole, overheadBytes } = place
  const least = leastUnderlayBytes(place)
  const takes = `the path takes ${limit} of ${whole} bytes`
  if (limit < least) return `${takes}, and packets of pods need ${least} there: raise the MTU of the path`
  return `${takes}: set Backend.MTU to ${limit} (overlay ${limit - overheadBytes}) on all nodes, or raise the MTU of the path`
}

/** The least that Backend.MTU can be: both tunnels go by it, and IPv6 of pods needs its 1280 bytes in either. */
function leastUnderlayBytes({ ipv6, ipv6Tunnel, overheadBytes }: LadderPlace): number {
  return smallestOverlayBytes(ipv6) + (ipv6Tunnel?.overheadBytes ?? overheadBytes)
}

/**
 * With DF set it is not the small path alone that makes a hole, but that nobody hears of it; over IPv6 always, since no
 * router cuts there.
 */
export function unlessTold({ outerDf, underlayFamily }: Pick<LadderPlace, 'outerDf' | 'underlayFamily'>): string {
  if (underlayFamily === 'IPv6') return '; or let ICMPv6 "packet too big" of the routers reach the nodes'
  if (outerDf === 'clear') return ''
  return '; or let ICMP "fragmentation needed" of the routers reach the nodes; or run them with --outer-df clear'
}

/** `above`: one byte more than the device should take. `underlay`: `null` when it does not answer. */
export function judgeSizes(
  place: LadderPlace,
  tunnel: RulerResult,
  above: SizeAnswer,
  underlay: RulerResult | null,
): Rung {
  const { overlayMtuBytes: expected, underlayMtuBytes: whole, overheadBytes, underlayFamily } = place
  const largest = tunnel.largestBytes ?? 0
  const path = underlay?.largestBytes ?? null
  const holed = path !== null && path < whole
  const rung = (verdict: Rung['verdict'], text: string, next: string | null = null): Rung => {
    return { name: 'sizes', verdict, text, averageMs: null, next }
  }
  const tooLarge = expected + overheadBytes > whole
  const needed = tooLarge
    ? `${expected} + ${overheadBytes} is more than the underlay's ${whole}`
    : `${whole} − ${overheadBytes}`
  if (largest < expected) {
    const hole = `${largest === 0 ? SMALLEST_BYTES : largest + 1} to ${expected} ${tunnel.namedBytes === null ? 'vanish' : `are refused (limit named: ${tunnel.namedBytes})`}`
    const text = `${largest === 0 ? 'nothing large' : largest} passes, ${hole}; expected ${expected} (${needed})`
    if (tooLarge) return rung('bad', text, `set Backend.MTU to ${whole} or leave it out, then restart the daemons`)
    if (place.outerDf === 'set' && largest > 0 && largest === tunnel.namedBytes) {
      return rung('warning', `${text}; pods are told and adapt`, pathAdvice(place, largest + overheadBytes))
    }
    if (holed) return rung('bad', text, pathAdvice(place, path) + unlessTold(place))
    const guess =
      largest === 0
        ? `what drops large UDP between the nodes? tracepath -n -l ${whole} here and there`
        : holeAdvice(place, largest)
    return rung('bad', text, guess)
  }
  const limit = above.passes ? `${expected + 1} passes too` : `${expected + 1} too big for the tunnel (${needed})`
  const text = `${expected} passes, ${limit}; underlay ${underlay === null ? 'not proven' : `passes ${path ?? 'nothing large'}`}`
  if (tooLarge) {
    const next = `each packet of ${expected} is cut in two: set Backend.MTU to ${whole} or leave it out`
    return rung('warning', text, next)
  }
  if (holed) {
    const where = underlayFamily === 'IPv6' ? 'before they leave' : 'on the way'
    return rung('warning', `${text} of ${whole}: large packets are cut ${where}`, pathAdvice(place, path))
  }
  return rung('good', text)
}
