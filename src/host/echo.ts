// `ping` of iputils as a probe: how many echoes came back, how fast, and what a kernel or a router said instead. It
// decides nothing; `flannelette ping`, `flannelette doctor --peers` and the lab's pings do.
import { attempt, commandFailure, type InNamespace } from './command.ts'

export interface EchoOptions {
  /** Echo requests, at least 1. */
  readonly count: number
  /** Length of the whole packet in bytes, from {@link echoHeaderBytes} to 65535; default 84 (IPv6: 104), as ping's own. */
  readonly packetBytes?: number
  /**
   * True: nothing on the way may cut the packet. False: everybody may, as far as the family allows. Absent: as this kernel
   * sends what most programs send, whole where it fits the path that the kernel knows.
   */
  readonly dontFragment?: boolean
  /**
   * Milliseconds that an answer may take; default 1000. It is what silence costs, after the last request. Once there was an
   * answer, ping itself waits for the others no longer than twice the longest round trip so far or one interval, whichever
   * is more (ping(8), `-W`; iputils' ping_common.c), so a last answer that is late would look lost. What ping has not
   * waited for as long as this is asked once more; unless `anyAnswer`.
   */
  readonly waitMs?: number
  /** Milliseconds between requests; default 200. */
  readonly intervalMs?: number
  /** One answer says enough: nothing is asked once more, and `received` may be too small, but never 0 for that reason. */
  readonly anyAnswer?: boolean
  readonly signal?: AbortSignal
}

export interface EchoResult {
  readonly sent: number
  readonly received: number
  /** Average round trip in milliseconds, `null` when nothing came back. */
  readonly averageMs: number | null
  /** The limit that was named when a packet was too big, in bytes, and by whom: `null` for this kernel. */
  readonly tooBig: { readonly limitBytes: number; readonly by: string | null } | null
  /** What was said in place of an answer: `Destination Host Unreachable from 192.0.2.9`; empty for silence. */
  readonly refusal: string
}

/** IP and ICMP headers without options. */
const ECHO_HEADER_BYTES = 28
const IPV6_ECHO_HEADER_BYTES = 48
const DEFAULT_WAIT_MS = 1000
const DEFAULT_INTERVAL_MS = 200

/** Bytes of the smallest echo request to an address: what its headers take. */
export function echoHeaderBytes(address: string): number {
  return address.includes(':') ? IPV6_ECHO_HEADER_BYTES : ECHO_HEADER_BYTES
}

/** @throws FlanneletteError `host-command`, `not-permitted` when ping itself cannot work */
export async function echo(address: string, options: EchoOptions, where: InNamespace = {}): Promise<EchoResult> {
  let { result, unheard } = await askSeries(address, options, where)
  // Each round hears of one more at least, or waits for silence to the end.
  while (unheard > 0 && options.anyAnswer !== true) {
    const again = await askSeries(address, { ...options, count: unheard }, where)
    result = joined(result, again.result)
    unheard = again.unheard
  }
  return result
}

async function askSeries(address: string, options: EchoOptions, where: InNamespace) {
  const { count, waitMs = DEFAULT_WAIT_MS, intervalMs = DEFAULT_INTERVAL_MS, packetBytes, dontFragment } = options
  const argv = [
    ...['ping', '-n', '-c', String(count), '-W', String(waitMs / 1000), '-i', String(intervalMs / 1000)],
    ...(packetBytes === undefined ? [] : ['-s', String(packetBytes - echoHeaderBytes(address))]),
    ...(dontFragment === undefined ? [] : ['-M', dontFragment ? 'do' : 'dont']),
    address,
  ]
  const { signal } = options
  const timeoutMs = count * intervalMs + waitMs + 10_000
  const said = await attempt(argv, { ...where, timeoutMs, ...(signal === undefined ? {} : { signal }) })
  const output = `${said.stdout}\n${said.stderr}`
  const result = parseEcho(output)
  if (result === null) throw commandFailure(argv, said, where.namespace)
  return { result, unheard: unheardRequests(output, { waitMs, intervalMs }) }
}

/** A series, and the requests at its end that were asked once more. */
function joined(first: EchoResult, again: EchoResult): EchoResult {
  const received = first.received + again.received
  const spentMs = (first.averageMs ?? 0) * first.received + (again.averageMs ?? 0) * again.received
  return {
    sent: first.sent,
    received,
    averageMs: received === 0 ? null : spentMs / received,
    tooBig: first.tooBig ?? again.tooBig,
    refusal: first.refusal === '' ? again.refusal : first.refusal,
  }
}

/**
 * How many requests at the end of a series ping may not have waited for: nothing was heard of them or of a later one,
 * and the last one may have been given no more than an interval. 0 for a series without an answer, which ping waits for.
 */
function unheardRequests(output: string, { waitMs, intervalMs }: { waitMs: number; intervalMs: number }): number {
  const counts = parseEchoCounts(output)
  if (counts === null || counts.received === 0) return 0
  const { sent, received } = counts
  // An answer comes after those to earlier requests: what is missing before it is lost. A redirect is no answer.
  let last = 0
  for (const [, number] of output.matchAll(/icmp_seq=(\d+) (?!Redirect)/g)) last = Math.max(last, Number(number))
  // What this host refuses to send has no number.
  const errors = Number(/\+(\d+) errors/.exec(output)?.[1] ?? 0)
  const impatient = Math.ceil(waitMs / intervalMs) - 1
  return Math.max(0, Math.min(sent - last, sent - received - errors, impatient))
}

/** Reads the closing lines of iputils' ping; `null` when they are missing. */
function parseEchoCounts(output: string): Pick<EchoResult, 'sent' | 'received' | 'averageMs'> | null {
  const counts = /(\d+) packets transmitted, (\d+) received/.exec(output)
  if (counts === null) return null
  const times = /= [\d.]+\/([\d.]+)\//.exec(output)
  return {
    sent: Number(counts[1]),
    received: Number(counts[2]),
    averageMs: times === null ? null : Number(times[1]),
  }
}

/** Everything that is read of ping's output, standard error included; `null` when it did not ping at all. */
export function parseEcho(output: string): EchoResult | null {
  // Said before the first request: there is no route at all, and no closing line.
  const unreachable = /connect: (Network is unreachable|No route to host)/.exec(output)?.[1]
  if (unreachable !== undefined) return { sent: 0, received: 0, averageMs: null, tooBig: null, refusal: unreachable }
  const counts = parseEchoCounts(output)
  if (counts === null) return null
  const local = /message too long, mtu\s?[=:]\s?(\d+)/i.exec(output)?.[1]
  const router = /From (\S+?):? icmp_seq=\d+ (?:Frag needed and DF set \(mtu = |Packet too big: mtu=)(\d+)/.exec(output)
  const tooBig =
    local !== undefined
      ? { limitBytes: Number(local), by: null }
      : router === null
        ? null
        : { limitBytes: Number(router[2]), by: router[1] ?? null }
  return { ...counts, tooBig, refusal: refusalIn(output) }
}

function refusalIn(output: string): string {
  const said = /From (\S+?):? icmp_seq=\d+ (?!Frag needed|Packet too big|Redirect)([A-Z][^\n]*?)\s*$/m.exec(output)
  if (said !== null) return `${said[2]} from ${said[1]}`
  const local = /sendmsg: ([^\n]+)/.exec(output)?.[1]
  return local === undefined || /too long/i.test(local) ? '' : local
}
