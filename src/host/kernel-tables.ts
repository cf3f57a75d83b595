// The kernel's neighbour, FDB and route tables behind a small interface: the real one through iproute2, another one in
// tests that lets commands fail.
import { readFileSync } from 'node:fs'
import type { InNamespace } from './command.ts'
import {
  type BatchFailure,
  batchEach,
  type FdbInfo,
  type IpTool,
  type NeighborInfo,
  type RouteInfo,
  showFamilies,
  showJson,
} from './ip.ts'
import type { PresentRows } from './kernel-vtep-plan.ts'

export interface KernelTables {
  /** @throws FlanneletteError `host-command`, for instance when the device is gone */
  read(): Promise<PresentRows>
  /** Runs every command, whatever becomes of the others. */
  apply(tool: IpTool, commands: readonly string[]): Promise<BatchFailure[]>
}

/** The families that a device carries: of the others a second device may hold routes. */
export interface CarriedFamilies {
  readonly ipv4: boolean
  readonly ipv6: boolean
}

/**
 * The tables of one device, by `ip` and `bridge`.
 * @throws FlanneletteError `host-command`, from its functions, when these cannot run
 */
export function kernelTables(device: string, carried: CarriedFamilies, where: InNamespace = {}): KernelTables {
  const concernsUs = ({ dst, dev }: RouteInfo) => dev === device || (dst.includes(':') ? carried.ipv6 : carried.ipv4)
  return {
    read: async () => {
      const [neighbors, fdb, routes] = await Promise.all([
        showFamilies<NeighborInfo>(['neigh', 'show', 'dev', device], where),
        showJson<FdbInfo>('bridge', ['fdb', 'show', 'dev', device], where),
        showFamilies<RouteInfo>(['route', 'show'], where),
      ])
      return { neighbors, fdb, routes: routes.filter(concernsUs) }
    },
    apply: (tool, commands) => batchEach(tool, commands, where),
  }
}

/**
 * Column behind the colon of /proc/net/dev, proc_pid_net(5), and what it counts seen from the tunnel: what the device
 * has received or sent has passed the kernel's VTEP. A super-packet counts as one.
 */
const DEVICE_COLUMNS = [
  [0, 'inbound.bytes.passed'],
  [1, 'inbound.packets.passed'],
  [2, 'inbound.errors'],
  [3, 'inbound.dropped'],
  [8, 'outbound.bytes.passed'],
  [9, 'outbound.packets.passed'],
  [10, 'outbound.errors'],
  [11, 'outbound.dropped'],
] as const

/** What the kernel counted on a device of this process's namespace; empty when there is no such device. */
export function deviceCounters(
  device: string,
  table = readFileSync('/proc/self/net/dev', 'utf8'),
): Record<string, number> {
  const line = table.split('\n').find((text) => text.trimStart().startsWith(`${device}:`))
  const counters: Record<string, number> = {}
  if (line === undefined) return counters
  const values = line
    .slice(line.indexOf(':') + 1)
    .trim()
    .split(/\s+/)
  for (const [column, name] of DEVICE_COLUMNS) counters[name] = Number(values[column])
  return counters
}
