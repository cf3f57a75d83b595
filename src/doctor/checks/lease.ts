// Checks of what the cluster knows of this node: store, own lease, and subnet.env that is derived from it.
import { containsPrefix, type Ipv4Prefix, parsePrefix, samePrefix } from '../../../dataplane/index.ts'
import { parseSubnetFile } from '../../config/subnet-file.ts'
import { formatSpan } from '../../time-span.ts'
import type { Facts } from '../facts.ts'
import { error, ok, type Remark, unseen, warning } from '../finding.ts'
import { optionOf } from '../program-output.ts'
import type { Check } from './check.ts'

const store: Check = {
  id: 'store',
  group: 'lease',
  judge: ({ view }) => {
    if (view.status === null || !view.alive) return []
    const { name, reachable, why } = view.status.store
    if (reachable) return [ok(`the store ${name} answers`)]
    const goesOn = view.status.lease === null ? 'the start waits for it' : 'forwarding goes on with the last leases'
    const message = `the store ${name} does not answer${why === '' ? '' : `: ${why}`}; ${goesOn}`
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
  if (remembered.subnet === null || remembered.network === null) {
    return [error(`${path} names no FLANNEL_SUBNET or FLANNEL_NETWORK`, 'remove it and restart the daemon')]
  }
  if (status?.lease == null) return [ok(`${path} says ${/^FLANNEL_SUBNET=(.*)$/m.exec(text)?.[1] ?? ''}`)]
  const found: Remark[] = []
  const differs = (what: string, has: Ipv4Prefix, wanted: string | undefined, inFile: string) => {
    const prefix = parsePrefix(wanted ?? '')
    if (prefix === null || samePrefix(has, prefix)) return
    const message = `${path} says ${what} ${inFile}, the daemon ${wanted}: new pods get addresses of others`
    found.push(error(message, 'restart the daemon, which writes it again; then restart the pods made meanwhile'))
  }
  const lineOf = (name: string) => new RegExp(`^${name}=(.*)$`, 'm').exec(text)?.[1] ?? ''
  differs('FLANNEL_SUBNET', remembered.subnet, status.lease.subnet, lineOf('FLANNEL_SUBNET'))
  differs('FLANNEL_NETWORK', remembered.network, status.node?.network, lineOf('FLANNEL_NETWORK'))
  const mtu = Number(lineOf('FLANNEL_MTU'))
  if (status.node !== null && mtu !== status.node.mtu) {
    const message = `${path} says FLANNEL_MTU ${lineOf('FLANNEL_MTU')}, the daemon ${status.node.mtu}`
    found.push(warning(message, 'restart the daemon, which writes it again'))
  }
  return found.length === 0 ? [ok(`${path} agrees with the lease`)] : found
}

export const LEASE_CHECKS: readonly Check[] = [store, lease, subnetFile]
