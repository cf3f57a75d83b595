// Checks of the interface that carries the tunnel: its sizes, its offloads, the UDP port and who may reach it.
import { formatAddress } from '../../../dataplane/index.ts'
import { chooseUnderlay } from '../../host/underlay-interface.ts'
import type { PortSocket } from '../facts.ts'
import { type FamilySide, saidOnce, tunnelFamilies } from '../family.ts'
import { error, note, ok, type Remark, unseen, warning } from '../finding.ts'
import { admitsPort, dropsPort } from '../firewall-chains.ts'
import { unlessTold } from '../ladder-sizes.ts'
import { isHole } from '../large-packets.ts'
import type { NodeView } from '../node-view.ts'
import { overheadOf } from '../place.ts'
import type { Check } from './check.ts'

const underlayInterface: Check = {
  id: 'underlay-interface',
  group: 'underlay',
  judge: ({ view, links, routes }) => {
    if (!links.seen) return [unseen(`interfaces: ${links.why}`)]
    const node = view.status?.node ?? null
    if (node === null) {
      if (!routes.seen) return [unseen(`routes: ${routes.why}`)]
      const defaults = routes.value.filter(({ dst }) => dst === 'default')
      try {
        const facts = { links: links.value, defaultRoutes: defaults, routeToReach: null }
        const { name, address, how } = chooseUnderlay(facts, { ifaces: [], ifaceRegexes: [] })
        return [ok(`the underlay would be ${name} (${formatAddress(address)}, by ${how})`)]
      } catch (problem) {
        return [warning((problem as Error).message, 'name the interface: --iface')]
      }
    }
    const { underlayInterface: name, underlayAddress: address } = node
    const link = links.value.find(({ ifname }) => ifname === name)
    if (link === undefined)
      return [error(`the underlay interface ${name} is gone`, `bring it back, or restart with another --iface`)]
    if (!link.flags.includes('UP')) return [error(`the underlay interface ${name} is down`, `ip link set ${name} up`)]
    if (!link.flags.includes('LOWER_UP'))
      return [error(`the underlay interface ${name} has no carrier`, 'look at cable or hypervisor')]
    const ours = [address, ...(node.ipv6Device ? [node.ipv6Device.underlayAddress] : [])]
    const lost = ours.find((one) => (link.addr_info ?? []).every(({ local }) => local !== one))
    if (lost !== undefined) {
      return [
        error(
          `${name} no longer has the address ${lost} that peers send to`,
          `ip address add it again, or restart the daemon`,
        ),
      ]
    }
    return [ok(`${name} is up with ${ours.join(' and ')}`)]
  },
}

const mtu: Check = {
  id: 'mtu',
  group: 'underlay',
  judge: ({ view, links }) => {
    const node = view.status?.node ?? null
    if (node === null) return []
    if (!links.seen) return [unseen(`MTU: ${links.why}`)]
    const mtuOf = (name: string) => links.value.find(({ ifname }) => ifname === name)?.mtu
    const [underlay, overhead] = [mtuOf(node.underlayInterface), overheadOf(node)]
    const found: Remark[] = []
    for (const { device: name, mtu: set } of [node, ...(node.ipv6Device ? [node.ipv6Device] : [])]) {
      const has = mtuOf(name)
      if (has === undefined || has === set) continue
      found.push(warning(`${name} has MTU ${has}, the daemon set ${set}`, `ip link set ${name} mtu ${set}`))
    }
    const sum = `underlay ${underlay} − overhead ${overhead}`
    if (underlay !== undefined && node.mtu + overhead > underlay) {
      const message = `overlay MTU ${node.mtu} is more than ${sum} = ${underlay - overhead}: large packets are cut or lost`
      found.push(error(message, `set Backend.MTU to ${underlay} or leave it out, then restart the daemons`))
    } else if (underlay !== undefined && node.mtu + overhead < underlay) {
      found.push(note(`overlay MTU ${node.mtu} is less than ${sum} = ${underlay - overhead}`))
    }
    for (const bridge of links.value.filter(isPodBridge(node.device))) {
      if (bridge.mtu <= node.mtu) continue
      const message = `${bridge.ifname} has MTU ${bridge.mtu}, the overlay ${node.mtu}: packets of pods are refused or cut`
      found.push(
        warning(message, `ip link set ${bridge.ifname} mtu ${node.mtu}; new pods get FLANNEL_MTU of subnet.env`),
      )
    }
    for (const { publicIp, pathMtu } of view.status?.peers ?? []) {
      if (pathMtu == null) continue
      found.push(
        note(`the way to ${publicIp} takes packets of pods up to ${pathMtu} of ${node.mtu} bytes; pods are told`),
      )
    }
    return found.some(({ severity }) => severity !== 'note') ? found : [...found, ok(`MTU ${node.mtu} = ${sum}`)]
  },
}

/** What passes is measured by commands that take their time; doctor says which. */
const largePackets: Check = {
  id: 'large-packets',
  group: 'underlay',
  judge: ({ view, largePackets: looked }) => {
    if (looked === null) return []
    if (!looked.seen) return [unseen(`large packets: ${looked.why}`)]
    const answering = looked.value.filter(({ smallPasses }) => smallPasses)
    if (looked.value.length === 0) return []
    if (answering.length === 0) return [note('large packets: no peer that was asked answers')]
    const holes = answering.filter(isHole)
    if (holes.length === 0)
      return [ok(`no large packets vanish on the way to ${answering.map(({ publicIp }) => publicIp).join(', ')}`)]
    return holes.map(({ publicIp, subnet, bytes }) => {
      const message = `large packets to ${publicIp} (${subnet}) vanish: small ones are answered, those of ${bytes} bytes are not, and nobody names a limit`
      const measure = `flannelette ping ${publicIp} measures it, flannelette doctor --peers for all peers`
      const underlayFamily = publicIp.includes(':') ? 'IPv6' : 'IPv4'
      const orTold = unlessTold({ outerDf: view.status?.outerDf ?? 'clear', underlayFamily })
      return error(message, `set Backend.MTU on all nodes to what the underlay passes${orTold}; ${measure}`)
    })
  },
}

function isPodBridge(device: string) {
  return ({ ifname, linkinfo }: { ifname: string; linkinfo?: { info_kind?: string } }): boolean => {
    return linkinfo?.info_kind === 'bridge' && ifname !== device && /^cni/.test(ifname)
  }
}

const offloads: Check = {
  id: 'offloads',
  group: 'underlay',
  judge: ({ offloads: looked, view }) => {
    if (view.status?.node == null) return []
    if (!looked.seen) return [unseen(`offloads: ${looked.why}`)]
    const name = view.status.node.underlayInterface
    const on = (feature: string) => looked.value[feature] === true
    const found: Remark[] = []
    if (on('large-receive-offload')) {
      const message = `${name} has large-receive-offload on, which damages packets that are forwarded`
      found.push(warning(message, `ethtool -K ${name} lro off`))
    }
    if (looked.value['generic-receive-offload'] === false) {
      found.push(
        note(
          `${name} has generic-receive-offload off: trains of datagrams arrive one by one`,
          `ethtool -K ${name} gro on`,
        ),
      )
    }
    if (looked.value['tx-udp-segmentation'] === false) {
      found.push(note(`${name} has tx-udp-segmentation off: the kernel cuts trains of datagrams itself`))
    }
    return found.length === 0 ? [ok(`offloads of ${name} are as they should be`)] : found
  },
}

const namesOf = ({ holders }: PortSocket) => holders.map(({ program, pid }) => `${program} (pid ${pid})`).join(', ')

const port: Check = {
  id: 'port-owner',
  group: 'underlay',
  judge: ({ udpPorts, view, root }) => {
    if (!udpPorts.seen) return [unseen(`UDP ports: ${udpPorts.why}`)]
    const status = view.status
    const [wanted, daemon] = [status?.node?.port ?? 8472, view.alive ? status?.pid : undefined]
    const sockets = udpPorts.value.filter((one) => one.port === wanted)
    if (daemon === undefined) {
      const first = sockets[0]
      if (first === undefined) return [ok(`UDP port ${wanted} is free`)]
      const who = namesOf(first) || 'the kernel or another user'
      return [
        warning(
          `UDP port ${wanted} is held by ${who}: a daemon cannot start`,
          `ss -lunp sport = :${wanted}; ip -d link show type vxlan`,
        ),
      ]
    }
    // A program that the daemon starts holds the daemon's sockets as well, for a moment.
    const isOurs = ({ holders }: PortSocket) => holders.some(({ pid }) => pid === daemon)
    const others = sockets.filter((one) => one.holders.length > 0 && !isOurs(one))
    if (others.length > 0) {
      const who = others.map(namesOf).join(', ')
      return [
        error(
          `UDP port ${wanted} is also held by ${who}: packets go to one of them`,
          `stop it, or choose another Backend.Port`,
        ),
      ]
    }
    if (sockets.some(isOurs)) return [ok(`UDP port ${wanted} is the daemon's`)]
    if (sockets.length > 0) {
      if (status?.dataplane === 'kernel') return [ok(`UDP port ${wanted} is the kernel's VTEP's`)]
      if (!root) return [unseen(`who holds UDP port ${wanted}: only root is told`)]
      const remedy = 'ip -d link show type vxlan; delete the device that nobody needs'
      return [error(`UDP port ${wanted} is held by the kernel, not by the daemon`, remedy)]
    }
    return [error(`nobody listens on UDP port ${wanted}`, 'restart the daemon and keep its log')]
  },
}

/** Addresses named in one finding. */
const NAMED_PEERS = 8

const firewallPort: Check = {
  id: 'firewall-port',
  group: 'underlay',
  judge: (facts) => saidOnce(tunnelFamilies(facts).flatMap((side) => judgePort(side, facts.view))),
}

function judgePort({ family, firewall, filterProgram }: FamilySide, { status, peers }: NodeView): Remark[] {
  const wanted = status?.node?.port ?? 8472
  if (!firewall.seen) return [unseen(`firewall (${family}): ${firewall.why}`)]
  const closed = firewall.value.filter((chain) => chain.hook === 'input' && !admitsPort(chain, wanted))
  const ofPeers = peers.flatMap(({ publicIp, publicIpv6 }) => [publicIp, ...(publicIpv6 ? [publicIpv6] : [])])
  const addresses = [...new Set(ofPeers)].filter((one) => one.includes(':') === (family === 'IPv6'))
  const dropping = firewall.value.filter((chain) => chain.hook !== 'forward' && dropsPort(chain, wanted, addresses))
  if (dropping.length > 0) return dropping.map(({ name }) => portDropped(name, wanted))
  const from = peersText(addresses)
  if (closed.length === 0) return [ok(`the firewall lets UDP ${wanted} in; needed from ${from}`)]
  const message = `${closed.map(({ name }) => name).join(', ')} drops by default and no rule names UDP port ${wanted}`
  return [warning(message, `${filterProgram} -I INPUT -p udp --dport ${wanted} -j ACCEPT, or by name for ${from}`)]
}

function portDropped(chain: string, port: number): Remark {
  const [program, family, ...rest] = chain.split(' ')
  const see = program === 'nft' ? `nft -a list chain ${family} ${rest.join(' ')}` : `${program} -S ${family}`
  return error(
    `${chain} has a rule that drops the tunnel (UDP port ${port})`,
    `${see} shows it; delete it, or accept peers before it`,
  )
}

function peersText(addresses: readonly string[]): string {
  if (addresses.length === 0) return 'every node'
  const rest = addresses.length - NAMED_PEERS
  return `${addresses.slice(0, NAMED_PEERS).join(', ')}${rest > 0 ? ` and ${rest} more` : ''}`
}

export const UNDERLAY_CHECKS: readonly Check[] = [underlayInterface, mtu, largePackets, offloads, port, firewallPort]
