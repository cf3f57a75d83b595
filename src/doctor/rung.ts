// A rung of the ladder, what climbing needs, and from where it starts. Rungs are judged in ladder.ts and
// ladder-sizes.ts.
import type { EchoOptions, EchoResult } from '../host/echo.ts'
import type { UdpAnswer } from '../host/udp-refusal.ts'

/**
 * `vtep-ipv6` only where both ends have an IPv6 half, `underlay-ipv6` and `sizes-ipv6` where that has a way of its own;
 * `route` in place of `vtep` where no tunnel is used, and `route-ipv6` with `pod-side-ipv6` where IPv6 uses none.
 */
export type RungName =
  | 'store'
  | 'underlay'
  | 'route'
  | 'vtep'
  | 'underlay-ipv6'
  | 'vtep-ipv6'
  | 'route-ipv6'
  | 'sizes'
  | 'sizes-ipv6'
  | 'pod-side'
  | 'pod-side-ipv6'

/**
 * `unproven`: no answer, which by itself proves nothing (ICMP may be blocked). `warning`: it works, but not as it
 * should. `skipped`: a rung below failed.
 */
export type Verdict = 'good' | 'bad' | 'unproven' | 'warning' | 'skipped'

export interface Rung {
  readonly name: RungName
  readonly verdict: Verdict
  readonly text: string
  /** Average round trip in milliseconds, `null` where nothing was timed. */
  readonly averageMs: number | null
  /** What to type or look at next; `null` for a rung that holds. */
  readonly next: string | null
}

/** The next hop of a packet. */
export interface Hop {
  /** Name. */
  readonly device: string
  /** Text form; `null` for the link itself. */
  readonly gateway: string | null
}

/** What the ladder asks of the network. */
export interface LadderTools {
  echo(address: string, options: EchoOptions): Promise<EchoResult>
  askUdpPort(address: string, port: number): Promise<UdpAnswer>
  /** Where this kernel sends packets to an address; `null` without a route. */
  hopTo(address: string): Promise<Hop | null>
  /** Wall clock, milliseconds since the epoch. */
  now(): number
}

/** The end of one tunnel. */
export interface TunnelDevice {
  readonly device: string
  readonly mtuBytes: number
  /** Between that and the underlay's, by the encapsulation. */
  readonly overheadBytes: number
}

/** This end of the way. */
export interface LadderPlace {
  /** Of the hosts' addresses that packets go between. */
  readonly underlayFamily: 'IPv4' | 'IPv6'
  readonly underlayInterface: string
  readonly underlayMtuBytes: number
  /** Empty where the backend has none. */
  readonly overlayDevice: string
  readonly overlayMtuBytes: number
  /** Between both, by the encapsulation. */
  readonly overheadBytes: number
  /** 0 for none. */
  readonly port: number
  /** DF of tunnel packets: where it is set, a path that takes less must be made known by ICMP. */
  readonly outerDf: 'clear' | 'set'
  /** Whether this node carries IPv6 as well. */
  readonly ipv6: boolean
  /** By a tunnel of its own, between IPv6 addresses of hosts; `null` where it takes the one of `overlayDevice`. */
  readonly ipv6Tunnel: TunnelDevice | null
}

export interface LadderOptions {
  /** Echo requests a rung, at least 1. */
  readonly count: number
  /** `null` when nothing is known of this node's device: only the underlay can be asked then. */
  readonly place: LadderPlace | null
  readonly tools: LadderTools
  readonly signal?: AbortSignal
  /** Told of each rung as it is known. */
  readonly onRung?: (rung: Rung) => void
}
