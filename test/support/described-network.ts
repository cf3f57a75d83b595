// A network that is only described: who answers, how large packets pass, and who says so. Doctor and ping are given it in
// place of the real one.
import type { LadderPlace, LadderTools } from '../../src/doctor/rung.ts'
import type { EchoResult } from '../../src/host/echo.ts'
import { NOW } from './doctor-facts.ts'

/** The node that asks: a tunnel over IPv4. */
export const PLACE: LadderPlace = {
  underlayFamily: 'IPv4',
  underlayInterface: 'eth0',
  underlayMtuBytes: 1500,
  overlayDevice: 'flannel.1',
  overlayMtuBytes: 1450,
  overheadBytes: 50,
  port: 8472,
  outerDf: 'clear',
  ipv6: false,
  ipv6Tunnel: null,
}

export interface Network {
  /** Addresses that answer. */
  readonly answers: readonly string[]
  /** Largest packet that passes to each, bytes; default everything. */
  readonly limits?: Readonly<Record<string, number>>
  readonly refused?: boolean
  readonly refusal?: string
  /** Answers to each series of echoes. */
  readonly received?: number
  /** Whether a packet that is too large is answered with the limit. */
  readonly tells?: boolean
  /** By which this host sends into the tunnel, or to the second host. */
  readonly device?: string | null | ((address: string) => string)
}

export function tools({
  answers,
  limits = {},
  refused = false,
  refusal = '',
  received,
  tells = false,
  device = 'flannel.1',
}: Network): LadderTools {
  return {
    echo: async (address, { count, packetBytes = 84, dontFragment = false }): Promise<EchoResult> => {
      const tooBig = dontFragment && packetBytes > (limits[address] ?? 65535)
      const comes = answers.includes(address) && !tooBig ? Math.min(count, received ?? count) : 0
      return {
        sent: count,
        received: comes,
        averageMs: comes > 0 ? 0.25 : null,
        tooBig: tooBig && tells ? { limitBytes: limits[address]!, by: null } : null,
        refusal: comes > 0 ? '' : refusal,
      }
    },
    askUdpPort: async () => (refused ? 'refused' : 'silent'),
    hopTo: async (address) => {
      const name = typeof device === 'function' ? device(address) : device
      return name === null ? null : { device: name, gateway: address.includes(':') ? '2001:db8::2' : '192.0.2.2' }
    },
    now: () => NOW,
  }
}
