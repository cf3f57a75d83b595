// `ping` of iputils as a probe: how many echoes came back, how fast, and what a kernel or a router said instead. It
// decides nothing; `flannelette ping` and `flannelette doctor --peers` do.
import { attempt, type CommandOptions, commandFailure } from './command.ts'

export interface EchoOptions {
  /** Echo requests, at least 1. */
  readonly count: number
  /** Length of the whole packet in bytes, 28 (IPv6: 48) to 65535; default 84, as ping's own. */
  readonly packetBytes?: number
  /** Sets DF: nothing on the way may cut the packet. */
  readonly dontFragment?: boolean
  /** Milliseconds to wait for the last answer; default 1000. */
  readonly waitMs?: number
  /** Milliseconds between requests; default 200. */
  readonly intervalMs?: number
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
export const IPV6_ECHO_HEADER_BYTES = 48

/** @throws FlanneletteError `host-command`, `not-permitted` when ping itself cannot work */
export async function echo(address: string, options: EchoOptions, where: Pick<CommandOptions, 'namespace'> = {}) {
  const { count, waitMs = 1000, intervalMs = 200, packetBytes } = options
  const headerBytes = address.includes(':') ? IPV6_ECHO_HEADER_BYTES : ECHO_HEADER_BYTES
  const argv = [
    ...['ping', '-n', '-c', String(count), '-W', String(waitMs / 1000), '-i', String(intervalMs / 1000)],
    ...(packetBytes === undefined ? [] : ['-s', String(packetBytes - headerBytes)]),
    ...['-M', options.dontFragment === true ? 'do' : 'dont'],
    address,
  ]
  const { signal } = options
  const timeoutMs = count * intervalMs + waitMs + 10_000
  const result = await attempt(argv, { ...where, timeoutMs, ...(signal === undefined ? {} : { signal }) })
  const parsed = parseEcho(`${result.stdout}\n${result.stderr}`)
  if (parsed === null) throw commandFailure(argv, result, where.namespace)
  return parsed
}

/** Reads the closing lines of iputils' ping; `null` when they are missing. */
export function parseEchoCounts(output: string): Pick<EchoResult, 'sent' | 'received' | 'averageMs'> | null {
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
