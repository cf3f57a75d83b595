// What doctor knows of a host when it judges it. Gathering (gather.ts) and judging (checks/) are apart, so that every
// judgement is a function of plain data.
import type { LinkInfo, RouteInfo } from '../host/ip.ts'
import type { FirewallChain } from './firewall-chains.ts'
import type { SizeLook } from './large-packets.ts'
import type { NodeView } from './node-view.ts'

/** Something that was looked at, or why it could not be. */
export type Looked<T> = { readonly seen: true; readonly value: T } | { readonly seen: false; readonly why: string }

/** A UDP socket, and who holds it: also a program that was started a moment ago and has not closed what it inherited. */
export interface PortSocket {
  readonly port: number
  /** Local address as `ss` prints it. */
  readonly address: string
  /** Empty for a socket of the kernel's own, or when its holders may not be known. */
  readonly holders: readonly { readonly pid: number; readonly program: string }[]
}

/** A device that a network manager believes to be its own. */
export interface ManagedDevice {
  readonly device: string
  readonly by: 'NetworkManager' | 'systemd-networkd'
}

/** One file of the CNI directory: the plugin types in it, in order; empty when it cannot be read. */
export interface CniConfig {
  readonly file: string
  readonly types: readonly string[]
}

/** Whether this kernel can make VXLAN devices. */
export type VxlanSupport = 'present' | 'loadable' | 'absent' | 'unknown'

export interface Facts {
  /** Wall clock, milliseconds since the epoch. */
  readonly now: number
  /** Whether doctor itself runs as root. */
  readonly root: boolean
  /** As `uname -r` prints it. */
  readonly kernelRelease: string
  /** `20.19.4` */
  readonly nodeVersion: string
  /** Why koffi does not load; empty when it does. */
  readonly koffiProblem: string
  /** `null` when /dev/net/tun opens; else the error's code (`ENOENT`, `EACCES`, …). */
  readonly tunProblem: string | null
  readonly vxlan: VxlanSupport
  /** CAP_NET_ADMIN of the daemon, or of doctor itself without one. */
  readonly mayConfigure: Looked<boolean>
  /** Open files that the daemon may have. */
  readonly openFileLimit: Looked<number>
  readonly view: NodeView
  /** Whether the daemon lives in another network namespace than doctor: what is of the network is not seen then. */
  readonly elsewhere: boolean
  /** Words of the daemon's command line. */
  readonly daemonWords: Looked<readonly string[]>
  /** Path of the daemon's local socket. */
  readonly apiSocket: string
  /** Whether somebody answers on it. */
  readonly apiAnswers: Looked<boolean>
  /** Why nothing can be written into the state directory; `null` when it can, or it is not known. */
  readonly stateProblem: string | null
  /** The daemon's counters a moment later; `null` when they were not read again. */
  readonly laterCounters: Readonly<Record<string, number>> | null
  readonly links: Looked<readonly LinkInfo[]>
  /** Main table, IPv4. */
  readonly routes: Looked<readonly RouteInfo[]>
  /** Main table, IPv6. */
  readonly ipv6Routes: Looked<readonly RouteInfo[]>
  /** By paths below /proc/sys; absent: no such setting, or not readable. */
  readonly settings: ReadonlyMap<string, string>
  /** Offloads of the underlay interface by ethtool's long names. */
  readonly offloads: Looked<Readonly<Record<string, boolean>>>
  readonly udpPorts: Looked<readonly PortSocket[]>
  /** Chains that packets of IPv4 pass, those for both families among them. */
  readonly firewall: Looked<readonly FirewallChain[]>
  /** The same for IPv6. */
  readonly ipv6Firewall: Looked<readonly FirewallChain[]>
  /** POSTROUTING of iptables' table nat, IPv4, as `-S` lists it. */
  readonly natRules: Looked<readonly string[]>
  readonly managed: Looked<readonly ManagedDevice[]>
  /** `null` when nobody was asked: there is no daemon, or all peers are asked for more. */
  readonly largePackets: Looked<readonly SizeLook[]> | null
  readonly subnetFilePath: string
  /** Text of subnet.env, `null` when there is none. */
  readonly subnetFile: Looked<string | null>
  /** Container engine options made from subnet.env; `null` when there is no such file. */
  readonly engineOptions: { readonly path: string; readonly text: string } | null
  /** In the order in which container runtimes look at them; `null` without a CNI directory. */
  readonly cniConfigs: readonly CniConfig[] | null
}

/** Name of the overlay device: as the status says, else flannel's usual one. */
export function overlayName(facts: Facts): string {
  return facts.view.status?.node?.device ?? 'flannel.1'
}

/** The same and, where IPv6 has a device of its own, that one. */
export function overlayNames(facts: Facts): string[] {
  const second = facts.view.status?.node?.ipv6Device
  return [overlayName(facts), ...(second ? [second.device] : [])]
}
