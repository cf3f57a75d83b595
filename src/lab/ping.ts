// Pings between members of a lab: one pair, or every ordered pair as a matrix.
import { FlanneletteError } from '../errors.ts'
import { type EchoOptions, echo, echoHeaderBytes } from '../host/echo.ts'
import { checkCount } from './plan.ts'

/** A member of a lab by name, with the namespace it lives in and the address others reach it at. */
export interface Endpoint {
  readonly name: string
  readonly namespace: string
  readonly address: string
}

/** 4 or 6: which of a member's addresses is meant. */
export type AddressFamily = 4 | 6

export interface PingOptions {
  /** Default 4. */
  readonly family?: AddressFamily
  /** Echo requests per pair, 1 to 10,000; default 1. */
  readonly count?: number
  /** Payload bytes, 0 to 65,507; default 56, as ping's own. */
  readonly sizeBytes?: number
  /** Sets DF: nothing on the way may fragment. */
  readonly dontFragment?: boolean
  /** Milliseconds that an answer may take, at least 1; default 2000. It is what silence costs. */
  readonly waitMs?: number
}

export interface PingResult {
  readonly from: string
  readonly to: string
  readonly sent: number
  readonly received: number
  /** Average round trip in milliseconds, `null` when nothing came back. */
  readonly averageMs: number | null
}

const ANSWER_MS = 4000
const INTERVAL_MS = 50
const MOST_PINGS = 10_000
/** What an IPv4 packet holds beside its own header (20 bytes) and that of ICMP (8). */
const MOST_PAYLOAD = 65_507
/** Pairs that are pinged at the same time. */
const PARALLEL = 8

/** @throws FlanneletteError `usage` for a count or size out of range, `host-command` when ping does not run */
export async function ping(from: Endpoint, to: Endpoint, options: PingOptions = {}): Promise<PingResult> {
  const count = options.count ?? 1
  checkCount('--count', count, 1, MOST_PINGS)
  if (options.sizeBytes !== undefined) checkCount('--size', options.sizeBytes, 0, MOST_PAYLOAD)
  const { sizeBytes, dontFragment } = options
  const echoOptions: EchoOptions = {
    ...{ count, waitMs: options.waitMs ?? ANSWER_MS, intervalMs: INTERVAL_MS },
    ...(sizeBytes === undefined ? {} : { packetBytes: sizeBytes + echoHeaderBytes(to.address) }),
    ...(dontFragment === true ? { dontFragment } : {}),
  }
  const { sent, received, averageMs, refusal } = await echo(to.address, echoOptions, { namespace: from.namespace })
  if (sent === 0) throw new FlanneletteError('host-command', `${from.name} cannot ping ${to.address}: ${refusal}`)
  return { from: from.name, to: to.name, sent, received, averageMs }
}

/** Every ordered pair of different members, in the order of the list. */
export async function pingAll(members: readonly Endpoint[], options: PingOptions = {}): Promise<PingResult[]> {
  const pairs = members.flatMap((from) => members.filter((to) => to !== from).map((to) => ({ from, to })))
  const results: PingResult[] = []
  let next = 0
  const worker = async () => {
    for (let index = next++; index < pairs.length; index = next++) {
      const pair = pairs[index]
      if (pair !== undefined) results[index] = await ping(pair.from, pair.to, options)
    }
  }
  await Promise.all(Array.from({ length: PARALLEL }, worker))
  return results
}
