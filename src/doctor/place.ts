// This node's end of the way to others, for the ladder and the peer matrix: devices, sizes and port as the status says
// them, the underlay's MTU as its device has it now.
import { overheadBytes } from '../config/mtu.ts'
import type { DaemonStatus } from '../daemon/status-file.ts'
import { echo } from '../host/echo.ts'
import { type RouteInfo, readLink, showJson } from '../host/ip.ts'
import { askUdpPort } from '../host/udp-refusal.ts'
import type { LadderPlace, LadderTools } from './rung.ts'

/** How long a refusal of the UDP port may take, milliseconds. */
const REFUSAL_WAIT_MS = 500

/** @throws FlanneletteError `host-command` when `ip` itself cannot run */
export async function ladderPlaceOf(status: DaemonStatus | null): Promise<LadderPlace | null> {
  const node = status?.node ?? null
  if (node === null || status?.dataplane === 'none' || status?.dataplane === 'commands') return null
  const overhead = overheadOf(node)
  const underlay = await readLink(node.underlayInterface)
  const { ipv6Device } = node
  return {
    underlayFamily: node.underlayAddress.includes(':') ? 'IPv6' : 'IPv4',
    underlayInterface: node.underlayInterface,
    underlayMtuBytes: underlay?.mtu ?? node.mtu + overhead,
    overlayDevice: node.device,
    overlayMtuBytes: node.mtu,
    overheadBytes: overhead,
    port: node.port,
    outerDf: status?.outerDf ?? 'clear',
    ipv6: node.overlayIpv6 !== null,
    ipv6Tunnel: ipv6Device
      ? { device: ipv6Device.device, mtuBytes: ipv6Device.mtu, overheadBytes: overheadOf({ ...node, ...ipv6Device }) }
      : null,
  }
}

type Addressed = Pick<NonNullable<DaemonStatus['node']>, 'device' | 'vni' | 'underlayAddress'>

/** What the tunnel of this node adds to each packet, in bytes; 0 without one. */
export function overheadOf({ device, vni, underlayAddress }: Addressed): number {
  if (device === '') return 0
  return overheadBytes(vni === 0 ? 'udp' : 'vxlan', underlayAddress.includes(':'))
}

/** The network as it is. */
export function realTools(status: DaemonStatus | null): LadderTools {
  const own = [status?.node?.underlayAddress, status?.node?.ipv6Device?.underlayAddress]
  return {
    echo,
    askUdpPort: async (address, port) => {
      const localAddress = own.find((one) => one !== undefined && one.includes(':') === address.includes(':'))
      if (localAddress === undefined) return 'silent'
      // No route, or the address is gone: what ping says of it is enough.
      return askUdpPort(address, port, localAddress, REFUSAL_WAIT_MS).catch(() => 'silent' as const)
    },
    hopTo: async (address) => {
      const family = address.includes(':') ? '-6' : '-4'
      const routes = await showJson<RouteInfo>('ip', [family, 'route', 'get', address]).catch(() => [])
      const { dev: device, gateway = null } = routes[0] ?? {}
      return device === undefined ? null : { device, gateway }
    },
    now: Date.now,
  }
}
