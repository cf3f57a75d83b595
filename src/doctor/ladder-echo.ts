// Rungs that are one question each: echoes to one address, and what their answers or their silence mean. The ladder
// (ladder.ts) and the way past the tunnel (ladder-direct.ts) put them together.
import type { EchoResult } from '../host/echo.ts'
import type { LadderOptions, Rung, RungName, Verdict } from './rung.ts'

/** Silence is asked twice: on a busy host a whole series may be late. */
export async function echoes(address: string, { tools, count, signal }: LadderOptions): Promise<EchoResult> {
  const options = signal === undefined ? { count } : { count, signal }
  const result = await tools.echo(address, options)
  return result.received > 0 || result.refusal !== '' ? result : tools.echo(address, options)
}

/** `options.place`: whose UDP port is asked for as well; 0 for none. */
export async function askUnderlay(
  publicIp: string,
  options: LadderOptions,
  name: 'underlay' | 'underlay-ipv6' = 'underlay',
): Promise<Rung> {
  const { tools, place } = options
  const [result, udp] = await Promise.all([
    echoes(publicIp, options),
    place === null || place.port === 0 ? ('silent' as const) : tools.askUdpPort(publicIp, place.port),
  ])
  const rung = (verdict: Verdict, text: string, next: string | null = null): Rung => {
    return { name, verdict, text: `ICMP ${publicIp}: ${text}`, averageMs: result.averageMs, next }
  }
  if (udp === 'refused') {
    const port = place?.port ?? 0
    return rung(
      'bad',
      `UDP port ${port} is refused: nothing listens there`,
      `on ${publicIp}: ss -lunp sport = :${port}`,
    )
  }
  if (result.received > 0) return rung(lossVerdict(result), answered(result), lossAdvice(result, publicIp))
  if (result.refusal !== '') {
    // The neighbour does not answer ARP (over IPv6 its solicitation), here or at the last router.
    const neighbour = /Host Unreachable|Address unreachable/.test(result.refusal)
      ? `is it up? ip neigh show to ${publicIp}; `
      : ''
    return rung('bad', result.refusal, `${neighbour}ip route get ${publicIp}`)
  }
  return rung('unproven', 'no answer (ICMP may be blocked: not proven)')
}

/** The bridge of a peer's pods in one of its subnets. */
export interface PodSide {
  /** Text form. */
  readonly subnet: string
  readonly bridge: string
  /** Of the peer's host, by which it is called. */
  readonly publicIp: string
  readonly podRung?: RungName
}

/** `silence`: what it means that nobody answers there, where the host itself has not answered either; empty where it has. */
export async function podRung(
  { subnet, bridge, publicIp, podRung: name = 'pod-side' }: PodSide,
  options: LadderOptions,
  silence = '',
): Promise<Rung> {
  const result = await echoes(bridge, options)
  const text = `${bridge}, the bridge of ${subnet}: `
  if (result.received > 0) {
    const next = lossAdvice(result, publicIp)
    const [verdict, averageMs] = [lossVerdict(result), result.averageMs]
    return { name, verdict, text: text + answered(result), averageMs, next }
  }
  const setting = bridge.includes(':') ? 'net.ipv6.conf.all.forwarding' : 'net.ipv4.ip_forward'
  const next = `${silence}on ${publicIp}: has a pod run there yet? ip address show to ${bridge}; sysctl ${setting}`
  const said = result.refusal === '' ? 'no answer' : result.refusal
  return { name, verdict: 'bad', text: text + said, averageMs: null, next }
}

export function answered({ sent, received }: EchoResult): string {
  return received === sent ? 'answers' : `${received} of ${sent} answered`
}

export function lossVerdict({ sent, received }: EchoResult): Verdict {
  return received === sent ? 'good' : 'warning'
}

export function lossAdvice(result: EchoResult, publicIp: string): string | null {
  return lossVerdict(result) === 'good' ? null : `packets are lost: ping -c 100 -i 0.05 ${publicIp}`
}

export function skipped(name: RungName, why: string): Rung {
  return { name, verdict: 'skipped', text: why, averageMs: null, next: null }
}
