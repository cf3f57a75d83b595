// Checks of how this host passes packets on: overlay device, routes, filters, forwarding.
import {
  containsPrefix,
  formatPrefix,
  overlaps,
  type Prefix,
  parsePrefix,
  samePrefix,
} from '../../../dataplane/index.ts'
import type { LeaseStatus } from '../../daemon/lease-status.ts'
import { type PendingGroup, pendingGroups, pendingSentences } from '../../daemon/pending-peers.ts'
import type { LinkInfo, RouteInfo } from '../../host/ip.ts'
import { findNetworkOverlap, parseDestination } from '../../host/network-overlap.ts'
import { judgeOverlayDevice } from '../../host/overlay-link.ts'
import { isForeignRoute, isPartTaken, otherRoutesIn } from '../../host/route-place.ts'
import { isOurPeerRoute } from '../../host/route-protocol.ts'
import { type Facts, overlayName, overlayNames } from '../facts.ts'
import { type CarriedFamily, carriedFamilies, type FamilySide, tunnelFamilies } from '../family.ts'
import { error, note, ok, type Remark, unseen, warning } from '../finding.ts'
import { forwards } from '../firewall-chains.ts'
import { pendingAdvice } from '../ladder-direct.ts'
import type { NodeView } from '../node-view.ts'
import type { Check } from './check.ts'

const overlayDevice: Check = {
  id: 'overlay-device',
  group: 'overlay',
  judge: (facts) => {
    const { view, links } = facts
    if (!links.seen) return [unseen(`interfaces: ${links.why}`)]
    if (view.status?.node == null) return []
    return overlayNames(facts).map((name) => judgeDevice(name, links.value, view))
  },
}

function judgeDevice(name: string, links: readonly LinkInfo[], { alive, status }: NodeView): Remark {
  const link = links.find(({ ifname }) => ifname === name)
  if (link === undefined) {
    if (!alive) return note(`${name} does not exist: the daemon makes it at its start`)
    return error(`the overlay device ${name} is gone`, 'the daemon makes it again within seconds; else restart it')
  }
  if (!link.flags.includes('UP')) return error(`${name} is down`, `ip link set ${name} up`)
  if (!link.flags.includes('LOWER_UP') && status?.dataplane === 'userspace') {
    const message = `no process holds ${name}: packets of pods vanish (IPv4) or are refused (IPv6)`
    return error(message, 'start the daemon')
  }
  return ok(`${name} is up`)
}

const kernelVtep: Check = {
  id: 'kernel-vtep',
  group: 'overlay',
  judge: (facts) => {
    const { view, links } = facts
    if (!links.seen) return [unseen(`interfaces: ${links.why}`)]
    const node = view.status?.node ?? null
    const kernel = view.status?.dataplane === 'kernel'
    const [names, port] = [overlayNames(facts), node?.port ?? 8472]
    const left = links.value.filter((link) => {
      return isForeignVtep(link, names, port) && !(kernel && names.includes(link.ifname))
    })
    if (left.length === 0) return [ok('no VTEP of another program is in the way')]
    return left.map(({ ifname, linkinfo }) => {
      const message = `${ifname} is a kernel VTEP (VNI ${linkinfo?.info_data?.id}, port ${linkinfo?.info_data?.port}) that takes our port or our name`
      const remedy = `is flanneld still running? then stop it; ip link delete ${ifname}`
      return kernel || !view.alive ? warning(message, remedy) : error(message, remedy)
    })
  },
}

function isForeignVtep(link: LinkInfo, names: readonly string[], port: number): boolean {
  if (link.linkinfo?.info_kind !== 'vxlan') return false
  const name = link.ifname
  if (names.includes(name) && judgeOverlayDevice(name, link).kind === 'foreign') return true
  return link.linkinfo.info_data?.port === port
}

const networkRoute: Check = {
  id: 'network-route',
  group: 'overlay',
  judge: (facts) => carriedFamilies(facts).flatMap((one) => judgeNetworkRoute(one, facts.view)),
}

function judgeNetworkRoute(one: CarriedFamily, view: NodeView): Remark[] {
  const { family, routes, network, device: deviceName, underlayAddress } = one
  if (!routes.seen) return [unseen(`routes of ${family}: ${routes.why}`)]
  const underlayInterface = view.status?.node?.underlayInterface ?? ''
  const overlap = findNetworkOverlap({ network, deviceName, underlayInterface, underlayAddress }, routes.value)
  const text = formatPrefix(network)
  const found: Remark[] = []
  if (overlap !== null) {
    const key = family === 'IPv4' ? 'Network' : 'IPv6Network'
    found.push(error(`the pod network ${text} ${overlap}`, `choose another ${key}, or delete that route`))
  }
  if (view.alive && view.status?.dataplane === 'userspace' && !hasNetworkRoute(routes.value, network, deviceName)) {
    const message = `the route of ${text} into ${deviceName} is missing`
    found.push(error(message, 'the daemon puts it back within seconds; who deletes it? ip monitor route'))
  }
  found.push(...insideRoutes(routes.value, one, view))
  return found.length === 0 ? [ok(`${text} leads into ${deviceName}`)] : found
}

function hasNetworkRoute(routes: readonly RouteInfo[], network: Prefix, device: string): boolean {
  return routes.some(({ dst, dev }) => {
    const prefix = parseDestination(dst)
    return dev === device && prefix !== null && samePrefix(prefix, network)
  })
}

/** Routes of others that take parts of the pod network away from the tunnel: grave where a peer's pods are. */
function insideRoutes(
  routes: readonly RouteInfo[],
  { network, device, showRoutes }: CarriedFamily,
  { status, peers }: NodeView,
): Remark[] {
  const own = halvesOf(status?.lease ?? null)
  return routes.flatMap((route) => {
    const { dst, dev, gateway, type } = route
    // A neighbour's pods, reached past the tunnel.
    if (isOurPeerRoute(route)) return []
    const prefix = parseDestination(dst)
    if (prefix === null || dev === device || samePrefix(prefix, network)) return []
    if (!containsPrefix(network, prefix) || own.some((half) => overlaps(half, prefix))) return []
    const via = gateway === undefined ? '' : ` via ${gateway}`
    const whither = dev === undefined ? `nowhere (${type ?? 'no device'})` : `${via} to ${dev}`.trim()
    const message = `${formatPrefix(prefix)} of the pod network leads ${whither}, not into ${device}`
    const remedy = `who made it? a container network? ${showRoutes} ${dst}; take another range there`
    const hit = peers.filter((peer) => halvesOf(peer).some((half) => overlaps(half, prefix)))
    if (hit.length === 0) return [warning(message, remedy)]
    return [error(`${message}: pods of ${hit.map(({ publicIp }) => publicIp).join(', ')} are not reached`, remedy)]
  })
}

/** The subnets of a lease, of both families. */
function halvesOf(lease: Pick<LeaseStatus, 'subnet' | 'ipv6Subnet'> | null): Prefix[] {
  return [lease?.subnet, lease?.ipv6Subnet].flatMap((text) => parseDestination(text ?? '') ?? [])
}

/** Peers that are to be reached by routes, without a tunnel. */
const peerRoutes: Check = {
  id: 'peer-routes',
  group: 'overlay',
  judge: ({ view }) => {
    const ways = view.peers.flatMap((peer) => (peer.ways ?? []).map((way) => ({ ...way, publicIp: peer.publicIp })))
    if (!view.alive) return []
    if (ways.length === 0) return [ok('no peer is to be reached by a route past the tunnel')]
    const pending = pendingGroups(view.peers).flatMap((group) => pendingRemarks(group, view))
    const taken = ways.flatMap((one): Remark[] => {
      const what = `${one.subnet} (${one.publicIp})`
      if (one.way === 'none' || !isForeignRoute(one.why)) return []
      const remedy = pendingAdvice(one.why, one.publicIp)
      if (!isPartTaken(one.why)) return [warning(`${what} is not reached past the tunnel: ${one.why}`, remedy)]
      const family = one.subnet.includes(':') ? '-6 ' : ''
      const all = otherRoutesIn(one.why) > 0 ? `; all of them: ip ${family}route show root ${one.subnet}` : ''
      return [warning(`${what}: ${one.why}`, remedy + all)]
    })
    const unwell = [...pending, ...taken]
    if (unwell.length > 0) return unwell
    const direct = ways.filter(({ way }) => way === 'direct').length
    return [ok(`${direct} of ${ways.length} subnets of peers are reached by routes, without a tunnel`)]
  },
}

function pendingRemarks(group: PendingGroup, { status }: NodeView): Remark[] {
  const sentences = pendingSentences(group)
  if (status?.dataplane === 'commands') {
    const remedy = 'correct what the command needs; the command itself stands in the network config'
    return sentences.map((sentence) => warning(sentence, remedy))
  }
  const { publicIp } = group.subnets[0]!
  return sentences.map((sentence) => error(sentence, pendingAdvice(group.why, publicIp)))
}

const rpFilter: Check = {
  id: 'rp-filter',
  group: 'overlay',
  judge: ({ view, settings, routes, links }) => {
    const node = view.status?.node ?? null
    if (node === null) return []
    const read = (name: string) => Number(settings.get(`net/ipv4/conf/${name}/rp_filter`) ?? Number.NaN)
    const all = read('all')
    if (Number.isNaN(all)) return [unseen('rp_filter: /proc/sys is not readable')]
    const bridges = links.seen ? links.value.filter(({ ifname }) => /^(cni|docker)\d/.test(ifname)) : []
    const names = [node.device, node.underlayInterface, ...bridges.map(({ ifname }) => ifname)]
    const text = [`all=${all}`, ...names.map((name) => `${name}=${read(name)}`)].join(' ')
    const network = parsePrefix(node.network)
    const routed = !routes.seen || network === null || hasNetworkRoute(routes.value, network, node.device)
    // The stricter of both holds (ip-sysctl.rst): 2, loose, is the higher number and the milder one.
    const strict = Math.max(all, read(node.device)) === 1
    if (strict && !routed && view.status?.dataplane === 'userspace') {
      const message = `strict rp_filter (${text}) drops what comes out of the tunnel while the network route is missing`
      return [error(message, `sysctl -w net.ipv4.conf.${node.device}.rp_filter=2, and see network-route`)]
    }
    return [ok(`rp_filter: ${text}${strict ? ' (strict, and the route is there)' : ''}`)]
  },
}

const ipForward: Check = {
  id: 'ip-forward',
  group: 'host',
  judge: (facts) => {
    const carried = carriedFamilies(facts).map(({ family }) => family)
    return [
      ...(carried.length === 0 || carried.includes('IPv4') ? judgeIpv4Forwarding(facts) : []),
      ...(carried.includes('IPv6') ? [judgeIpv6Forwarding(facts.settings.get('net/ipv6/conf/all/forwarding'))] : []),
    ]
  },
}

function judgeIpv4Forwarding({ settings, links }: Facts): Remark[] {
  const value = settings.get('net/ipv4/ip_forward')
  if (value === undefined) return [unseen('net.ipv4.ip_forward is not readable')]
  if (value === '0') {
    const message = 'net.ipv4.ip_forward is 0: packets of pods are not passed on'
    return [error(message, 'sysctl -w net.ipv4.ip_forward=1, and in /etc/sysctl.d for the next boot')]
  }
  const names = links.seen ? links.value.map(({ ifname }) => ifname).filter((name) => /^(cni|flannel)/.test(name)) : []
  const closed = names.filter((name) => settings.get(`net/ipv4/conf/${name}/forwarding`) === '0')
  if (closed.length === 0) return [ok('ip_forward is on')]
  return closed.map((name) =>
    error(
      `${name} does not forward although ip_forward is 1`,
      `sysctl -w net.ipv4.conf.${name.replace('.', '/')}.forwarding=1`,
    ),
  )
}

function judgeIpv6Forwarding(value: string | undefined): Remark {
  if (value === undefined) return unseen('net.ipv6.conf.all.forwarding is not readable')
  if (value !== '0') return ok('forwarding of IPv6 is on')
  const message = 'net.ipv6.conf.all.forwarding is 0: packets of pods are not passed on'
  return error(message, 'sysctl -w net.ipv6.conf.all.forwarding=1, and in /etc/sysctl.d for the next boot')
}

const forwardPolicy: Check = {
  id: 'forward-policy',
  group: 'host',
  judge: (facts) => {
    const carried = carriedFamilies(facts)
    if (carried.length > 0) return carried.flatMap((one) => judgeForwarding(one, one.network, facts))
    return tunnelFamilies(facts).flatMap((side) => judgeForwarding(side, null, facts))
  },
}

/** `network`: `null` while no daemon has named it; then only what accepts everything will do. */
function judgeForwarding(side: FamilySide, network: Prefix | null, facts: Facts): Remark[] {
  const { firewall, filterProgram, family } = side
  if (!firewall.seen) return [unseen(`firewall (${family}): ${firewall.why}`)]
  const devices = [...overlayNames(facts).filter((name) => name !== ''), 'cni0']
  const wanted = network ?? EVERYTHING
  const closed = firewall.value.filter((chain) => chain.hook === 'forward' && !forwards(chain, wanted, devices))
  if (closed.length === 0) return [ok(`no firewall chain drops forwarded packets of pods by default (${family})`)]
  const cidr = network === null ? 'NETWORK' : formatPrefix(network)
  const word = family === 'IPv4' ? 'ip' : 'ip6'
  return closed.map(({ name }) => {
    const message = `${name} drops by default and no rule accepts ${cidr}: pods of other hosts are not reached`
    const remedy = name.startsWith(filterProgram)
      ? `${filterProgram} -I FORWARD -s ${cidr} -j ACCEPT; ${filterProgram} -I FORWARD -d ${cidr} -j ACCEPT`
      : `add to that chain: ${word} saddr ${cidr} accept; ${word} daddr ${cidr} accept`
    return facts.view.alive ? error(message, remedy) : warning(message, remedy)
  })
}

/** Contained in nothing but itself. */
const EVERYTHING: Prefix = { address: 0, length: 0 }

const bridgeNetfilter: Check = {
  id: 'br-netfilter',
  group: 'host',
  judge: ({ settings, cniConfigs, elsewhere }) => {
    const value = settings.get('net/bridge/bridge-nf-call-iptables')
    if (elsewhere) return [unseen('bridge-nf-call-iptables: the daemon lives in another network namespace')]
    if (value === '1') return [ok('bridged packets pass iptables (br_netfilter)')]
    const what =
      value === undefined ? 'the module br_netfilter is not loaded' : 'net.bridge.bridge-nf-call-iptables is 0'
    const message = `${what}: services may fail between pods of this host`
    const remedy = 'modprobe br_netfilter; sysctl -w net.bridge.bridge-nf-call-iptables=1'
    return [(cniConfigs ?? []).length > 0 ? warning(message, remedy) : note(message, remedy)]
  },
}

const managedDevice: Check = {
  id: 'managed-device',
  group: 'host',
  judge: (facts) => {
    const { managed } = facts
    if (!managed.seen) return [unseen(`network managers: ${managed.why}`)]
    const name = overlayName(facts)
    const taken = managed.value.filter(({ device }) => device === name || /^(cni|flannel|veth)/.test(device))
    if (taken.length === 0) return [ok('no network manager claims our devices')]
    return taken.map(({ device, by }) => {
      const remedy =
        by === 'NetworkManager'
          ? '/etc/NetworkManager/conf.d/flannel.conf: [keyfile] unmanaged-devices=interface-name:flannel*;interface-name:cni*;interface-name:veth*'
          : '/etc/systemd/network/10-flannel.network: [Match] Name=flannel* cni* veth*, [Link] Unmanaged=yes'
      return warning(`${by} manages ${device}: it may take addresses and routes away`, remedy)
    })
  },
}

export const HOST_CHECKS: readonly Check[] = [
  overlayDevice,
  kernelVtep,
  networkRoute,
  peerRoutes,
  rpFilter,
  ipForward,
  forwardPolicy,
  bridgeNetfilter,
  managedDevice,
]
