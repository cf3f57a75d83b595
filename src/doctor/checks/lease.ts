// Checks of what the cluster knows of this node: store, own lease, and subnet.env that is derived from it.
import { containsPrefix, type Prefix, parseIpv6Prefix, parsePrefix, samePrefix } from '../../../dataplane/index.ts'
import { parseSubnetFile } from '../../config/subnet-file.ts'
import { optionOf } from '../../daemon/daemon-words.ts'
import { awayInWords } from '../../daemon/status-line.ts'
import { unreadableInWords } from '../../daemon/unreadable-leases.ts'
import { formatSpan } from '../../time-span.ts'
import type { Facts } from '../facts.ts'
import { error, ok, type Remark, unseen, warning } from '../finding.ts'
import type { Check } from './check.ts'

const store: Check = {
  id: 'store',
  group: 'lease',
  judge: ({ view }) => {
    if (view.status === null || !view.alive) return []
    const { store, lease: own } = view.status
    if (store.reachable) return [ok(`the store ${store.name} answers`)]
    const goesOn = own === null ? 'the start waits for it' : 'forwarding goes on with the last leases'
    const message = `the store ${awayInWords(store)}; ${goesOn}`
    return [warning(message, 'start it or open the way to it; the daemon finds it by itself')]
  },
}

const lease: Check = {
  id: 'lease',
  group: 'lease',
  judge: (facts) => {
    const { status } = facts.view
    if (status === null) return []
    const { lease: own, node } = status
    if (own === null) {
      if (!facts.view.alive) return []
      const remedy = 'the log says what it waits for: journalctl -u flannelette'
      return [error(`this node has no lease (${status.store.why || 'the store answers'})`, remedy)]
    }
    const found: Remark[] = []
    const [subnet, network] = [parsePrefix(own.subnet), parsePrefix(node?.network ?? '')]
    if (subnet !== null && network !== null && !containsPrefix(network, subnet)) {
      const message = `the lease ${own.subnet} lies outside the network ${node?.network}`
      found.push(error(message, 'the network config was changed: restart the daemon'))
    }
    if (node !== null && !hasAddress(facts, own.publicIp) && own.publicIp !== node.underlayAddress) {
      const message = `peers send to ${own.publicIp}, which is no address of this host (the socket has ${node.underlayAddress})`
      found.push({ severity: 'note', message, remedy: 'right behind NAT; else leave --public-ip out' })
    }
    return [...found, judgeExpiry(own, facts.now)]
  },
}

/** Renewal is an hour before the end unless told otherwise: below this it has failed for a while. */
const LATE_MS = 30 * 60_000

function judgeExpiry({ subnet, expiresAt }: { subnet: string; expiresAt: string | null }, now: number): Remark {
  if (expiresAt === null) return ok(`lease ${subnet}, never expires`)
  const left = Date.parse(expiresAt) - now
  const remedy = 'is the store reachable? restart the daemon when it is'
  if (left <= 0) return error(`the lease ${subnet} expired ${formatSpan(-left)} ago: peers take this node away`, remedy)
  if (left < LATE_MS) return warning(`the lease ${subnet} ends in ${formatSpan(left)} and was not renewed`, remedy)
  return ok(`lease ${subnet} for ${formatSpan(left)} more`)
}

function hasAddress({ links }: Facts, address: string): boolean {
  if (!links.seen) return true
  return links.value.some(({ addr_info }) => (addr_info ?? []).some(({ local }) => local === address))
}

const subnetFile: Check = {
  id: 'subnet-file',
  group: 'lease',
  judge: (facts) => {
    const { subnetFile: looked, subnetFilePath: path } = facts
    if (!looked.seen) return [unseen(`${path}: ${looked.why}`)]
    if (looked.value === null) return [missingSubnetFile(facts)]
    return judgeSubnetFile(facts, looked.value)
  },
}

/** Pods hang in creation without the file; the usual reasons, told apart. */
function missingSubnetFile({ view, daemonWords, subnetFilePath: path }: Facts): Remark {
  const elsewhere = daemonWords.seen ? optionOf(daemonWords.value, 'subnet-file') : null
  if (elsewhere !== null && elsewhere !== path) {
    const message = `${path} is missing: the daemon writes ${elsewhere}`
    return warning(message, `CNI plugins look at ${path}: set their subnetFile, or leave --subnet-file out`)
  }
  if (!view.alive) {
    const message = `${path} is missing, and no daemon runs that would write it: pods cannot be made`
    return warning(message, 'start the daemon; the directory is empty after each boot')
  }
  const { status } = view
  if (status?.lease == null) {
    const why = status?.store.why || (status?.store.reachable === true ? 'no lease yet' : 'the store does not answer')
    const message = `${path} is missing: the daemon has no lease (${why})`
    return error(message, 'the store needs a network config, and this node a free subnet: see the log')
  }
  const message = `${path} is missing although this node has the lease ${status.lease.subnet}`
  return error(message, 'somebody removed it: restart the daemon, which writes it again')
}

function judgeSubnetFile({ view, subnetFilePath: path }: Facts, text: string): Remark[] {
  const remembered = parseSubnetFile(text)
  const { status } = view
  const { subnet, network, ipv6Subnet, ipv6Network } = remembered
  const [own, whole] = subnet === null && network === null ? [ipv6Subnet, ipv6Network] : [subnet, network]
  if (own === null || whole === null) {
    return [error(`${path} names no FLANNEL_SUBNET or FLANNEL_NETWORK`, 'remove it and restart the daemon')]
  }
  if (status?.lease == null) return [ok(`${path} says ${/^FLANNEL_(?:IPV6_)?SUBNET=(.*)$/m.exec(text)?.[1] ?? ''}`)]
  const found: Remark[] = []
  const lineOf = (name: string) => new RegExp(`^${name}=(.*)$`, 'm').exec(text)?.[1] ?? ''
  const differs = (what: string, has: Prefix | null, wanted: string | null | undefined) => {
    const prefix = parsePrefix(wanted ?? '') ?? parseIpv6Prefix(wanted ?? '')
    if (prefix === null || (has !== null && samePrefix(has, prefix))) return
    const inFile = lineOf(what) || 'nothing'
    const message = `${path} says ${what} ${inFile}, the daemon ${wanted}: new pods get addresses of others`
    found.push(error(message, 'restart the daemon, which writes it again; then restart the pods made meanwhile'))
  }
  if (own === subnet) {
    differs('FLANNEL_SUBNET', subnet, status.lease.subnet)
    differs('FLANNEL_NETWORK', network, status.node?.network)
  }
  differs('FLANNEL_IPV6_SUBNET', ipv6Subnet, status.lease.ipv6Subnet)
  differs('FLANNEL_IPV6_NETWORK', ipv6Network, status.node?.ipv6Network)
  const mtu = Number(lineOf('FLANNEL_MTU'))
  if (status.node !== null && mtu !== status.node.mtu) {
    const message = `${path} says FLANNEL_MTU ${lineOf('FLANNEL_MTU')}, the daemon ${status.node.mtu}`
    found.push(warning(message, 'restart the daemon, which writes it again'))
  }
  return found.length === 0 ? [ok(`${path} agrees with the lease`)] : found
}

const unreadable: Check = {
  id: 'unreadable-leases',
  group: 'lease',
  judge: ({ view }) => {
    const { status } = view
    if (status?.unreadableLeases === undefined || !view.alive) return []
    const { unreadableLeases: found, store } = status
    const words = unreadableInWords(found)
    if (words === null) return [ok('all leases in the store can be read')]
    const message = `${words}; who it belongs to is not reached, unless its lease was read before`
    return [warning(message, howToLook(store.name, found.examples[0]!.key))]
  },
}

/** What a shell takes for itself and nothing else. Of another key no command is made: it may be meant to be pasted. */
const PLAIN_KEY = /^[\w./:&-]+$/

/** `-w fields` writes out what a terminal would obey, cat -v as well. */
function howToLook(store: string, key: string): string {
  const isPlain = PLAIN_KEY.test(key)
  const owner = 'start the daemon of its node again, or delete it if no node has it'
  if (store.startsWith('file:')) return `look at it${isPlain ? `: cat -v '${key}'` : ' with cat -v'}; ${owner}`
  const access = "with the daemon's endpoints and TLS files"
  if (isPlain) return `look at it: etcdctl get -w fields '${key}' (${access}); ${owner}: etcdctl del '${key}'`
  return `look at it: etcdctl get -w fields --prefix PREFIX/subnets/ (${access}); ${owner}`
}

export const LEASE_CHECKS: readonly Check[] = [store, lease, unreadable, subnetFile]
