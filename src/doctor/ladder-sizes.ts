// The rung of sizes: the largest packet that the tunnel and the underlay pass whole, set against what they should.
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

export async function sizesRung(
  { vtep, publicIp, underlayAnswers }: SizesTarget,
  place: LadderPlace,
  { tools, signal }: Pick<LadderOptions, 'tools' | 'signal'>,
): Promise<Rung> {
  const ask = (address: string) => async (packetBytes: number) => {
    const options: EchoOptions = { count: TRIES, intervalMs: 50, waitMs: WAIT_MS, packetBytes, dontFragment: true }
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

export function toAnswer({ received, tooBig }: EchoResult): SizeAnswer {
  return { passes: received > 0, limitBytes: tooBig?.limitBytes ?? null }
}

/** What to do where larger packets just vanish. `largest`: of pods, in bytes, that pass. */
export function holeAdvice(place: LadderPlace, largest: number): string {
  const passes = largest + place.overheadBytes
  const guess = `the underlay seems to pass ${passes}: set Backend.MTU to ${passes} on all nodes, or find what drops larger UDP`
  return guess + unlessTold(place)
}

/** With DF set it is not the small path alone that makes a hole, but that nobody hears of it. */
export function unlessTold({ outerDf }: Pick<LadderPlace, 'outerDf'>): string {
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
  const { overlayMtuBytes: expected, underlayMtuBytes: whole, overheadBytes } = place
  const largest = tunnel.largestBytes ?? 0
  const path = underlay?.largestBytes ?? null
  const holed = path !== null && path < whole
  const advice = (limit: number) =>
    `the path takes ${limit} of ${whole} bytes: set Backend.MTU to ${limit} (overlay ${limit - overheadBytes}) on all nodes, or raise the MTU of the path`
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
      return rung('warning', `${text}; pods are told and adapt`, advice(largest + overheadBytes))
    }
    if (holed) return rung('bad', text, advice(path) + unlessTold(place))
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
  if (holed) return rung('warning', `${text} of ${whole}: large packets are cut on the way`, advice(path))
  return rung('good', text)
}
