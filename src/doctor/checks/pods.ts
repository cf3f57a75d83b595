// Checks of what stands between subnet.env and the pods: bridge, CNI configs, options of a container engine.
import {
  containsPrefix,
  formatPrefix,
  type Ipv4Prefix,
  overlaps,
  parsePrefix,
  samePrefix,
} from '../../../dataplane/index.ts'
import type { LinkInfo } from '../../host/ip.ts'
import { type Facts, overlayName } from '../facts.ts'
import { error, note, ok, type Remark, unseen, warning } from '../finding.ts'
import type { Check } from './check.ts'

/** The subnet that pods of this host should live in: the lease's, else what subnet.env remembers. */
function ownSubnet({ view, subnetFile }: Facts): Ipv4Prefix | null {
  const text = subnetFile.seen ? /^FLANNEL_SUBNET=(\S+)/m.exec(subnetFile.value ?? '')?.[1] : undefined
  return parsePrefix(view.status?.lease?.subnet ?? text ?? '')
}

interface BridgeAddress {
  readonly link: LinkInfo
  readonly text: string
  readonly prefix: Ipv4Prefix
}

/** IPv4 networks of the bridges, and of other devices when `all`. */
function networksOf(links: readonly LinkInfo[], device: string, all: boolean): BridgeAddress[] {
  return links
    .filter((link) => link.ifname !== device && (all || link.linkinfo?.info_kind === 'bridge'))
    .flatMap((link) =>
      (link.addr_info ?? []).flatMap(({ family, local, prefixlen }) => {
        const text = `${local}/${prefixlen}`
        const prefix = family === 'inet' ? parsePrefix(text) : null
        return prefix === null ? [] : [{ link, text, prefix }]
      }),
    )
}

const bridgeAddress: Check = {
  id: 'bridge-address',
  group: 'pods',
  judge: (facts) => {
    const { links } = facts
    const subnet = ownSubnet(facts)
    if (subnet === null) return []
    if (!links.seen) return [unseen(`bridges: ${links.why}`)]
    const wrong = networksOf(links.value, overlayName(facts), false).filter(
      ({ link, prefix }) => /^cni/.test(link.ifname) && !samePrefix(prefix, subnet),
    )
    if (wrong.length === 0) return [ok('the bridge of the pods is in the own subnet, or not made yet')]
    return wrong.map(({ link: { ifname }, text }) => {
      const message = `${ifname} has ${text}, but the subnet of this node is ${formatPrefix(subnet)}: new pods cannot be made`
      return error(message, `drain the node, then: ip link delete ${ifname} (the CNI plugin makes it again)`)
    })
  },
}

const subnetTwice: Check = {
  id: 'subnet-twice',
  group: 'pods',
  judge: (facts) => {
    const { links } = facts
    const subnet = ownSubnet(facts)
    if (subnet === null) return []
    if (!links.seen) return [unseen(`interfaces: ${links.why}`)]
    const covering = networksOf(links.value, overlayName(facts), true).filter(
      ({ prefix }) => prefix.length < 32 && overlaps(prefix, subnet),
    )
    const names = [...new Set(covering.map(({ link }) => link.ifname))]
    if (names.length < 2) return [ok('the own subnet is on one interface at most')]
    const what = covering.map(({ link, text }) => `${link.ifname} (${text})`).join(' and ')
    const spare = names.filter((name) => name !== 'cni0')
    const remedy = `delete the one that pods do not use: ip link delete ${spare[0] ?? names[0]}`
    return [error(`two interfaces cover the own subnet ${formatPrefix(subnet)}: ${what}`, remedy)]
  },
}

const cniOrder: Check = {
  id: 'cni-order',
  group: 'pods',
  judge: ({ cniConfigs }) => {
    if (cniConfigs === null) return []
    const [first] = cniConfigs
    if (first === undefined) return [note('the CNI directory holds no config: pods have no network yet')]
    const listed = cniConfigs.map(({ file, types }) => `${file} (${types.join(', ') || 'unreadable'})`).join(', then ')
    if (first.types.includes('flannel')) return [ok(`CNI configs: ${listed}`)]
    if (!cniConfigs.some(({ types }) => types.includes('flannel'))) {
      return [note(`no CNI config names the flannel plugin: ${listed}`)]
    }
    const message = `the first CNI config is not flannel's: ${listed}; pods get addresses of another plugin`
    return [error(message, `remove ${first.file}, or give flannel's a name that sorts before it`)]
  },
}

const engineOptions: Check = {
  id: 'engine-options',
  group: 'pods',
  judge: (facts) => {
    const { engineOptions: options } = facts
    const subnet = ownSubnet(facts)
    if (options === null || subnet === null) return []
    const text = /--bip=([\d.]+\/\d+)/.exec(options.text)?.[1]
    const bip = text === undefined ? null : parsePrefix(text)
    if (bip === null) return [note(`${options.path} names no --bip`)]
    const found: Remark[] = []
    if (!samePrefix(bip, subnet)) {
      const message = `${options.path} says --bip=${text}, but the subnet of this node is ${formatPrefix(subnet)}`
      found.push(error(message, 'flannelette docker-opts writes it again; then restart the container engine'))
    }
    found.push(...engineBridge(facts, subnet))
    return found.length === 0 ? [ok(`${options.path} agrees with the subnet`)] : found
  },
}

/** An engine that was started before the options were written. */
function engineBridge({ links }: Facts, subnet: Ipv4Prefix): Remark[] {
  if (!links.seen) return []
  const bridges = networksOf(links.value, '', false).filter(({ link }) => link.ifname === 'docker0')
  return bridges
    .filter(({ prefix }) => !samePrefix(prefix, subnet))
    .map(({ text }) => {
      const message = `docker0 has ${text}, but the subnet of this node is ${formatPrefix(subnet)}`
      return warning(message, 'restart the container engine: it was started with older options')
    })
}

/** What a packet from a pod of this host to one of another host is like. */
interface PodToPod {
  readonly network: Ipv4Prefix
  readonly subnet: Ipv4Prefix
  /** Where it leaves. */
  readonly device: string
}

const podsMasqueraded: Check = {
  id: 'pods-masqueraded',
  group: 'pods',
  judge: (facts) => {
    const { natRules } = facts
    const [node, subnet] = [facts.view.status?.node, ownSubnet(facts)]
    const network = parsePrefix(node?.network ?? '')
    if (node == null || network === null || subnet === null) return []
    if (!natRules.seen) return [unseen(`iptables, table nat: ${natRules.why}`)]
    const device = node.device === '' ? node.underlayInterface : node.device
    const found = natRules.value.filter((line) => translatesPods(line, { network, subnet, device }))
    if (found.length === 0) return [ok('no rule of others gives packets between pods another source')]
    return found.map((line) => {
      const rule = line.replace(/^-A POSTROUTING /, '')
      const message = `a rule in POSTROUTING hides pods of this host from others, which see the host's address: ${rule}`
      const remedy = `start the container engine with --ip-masq=false if it is its own, else iptables -t nat -D POSTROUTING ${rule}`
      return warning(message, remedy)
    })
  },
}

/** A rule of others by what it names; one that asks for more than addresses and devices (a mark, a port) is not judged. */
function translatesPods(line: string, { network, subnet, device }: PodToPod): boolean {
  const text = line.replace(/ -m comment --comment ("[^"]*"|\S+)/, '')
  if (!/ -j (MASQUERADE|SNAT)\b/.test(text) || / -[mp] /.test(text) || line.includes('"flanneld ')) return false
  const named = (flag: string) => {
    const [, not, word] = new RegExp(`( !)? ${flag} (\\S+)`).exec(text) ?? []
    return word === undefined ? null : { not: not !== undefined, word }
  }
  const fits = (flag: string, holds: (word: string) => boolean) => {
    const match = named(flag)
    return match === null || holds(match.word) !== match.not
  }
  const within = (word: string, whole: Ipv4Prefix) => {
    const prefix = parsePrefix(word)
    return prefix !== null && (containsPrefix(prefix, whole) || containsPrefix(whole, prefix))
  }
  return (
    fits('-s', (word) => within(word, subnet)) &&
    fits('-d', (word) => within(word, network) && word !== formatPrefix(subnet)) &&
    fits('-o', (word) => word === device)
  )
}

export const POD_CHECKS: readonly Check[] = [bridgeAddress, subnetTwice, cniOrder, engineOptions, podsMasqueraded]
