// The first half of a start: from what the node remembers and what the store says to a lease.
import { formatIpv4, formatMac, formatPrefix } from '../../dataplane/index.ts'
import { delay } from '../clock.ts'
import { chooseMtu, smallestOverlayBytes } from '../config/mtu.ts'
import { type NetworkConfig, parseNetworkConfig } from '../config/network-config.ts'
import { type KnownSubnets, readSubnetFile } from '../config/subnet-file.ts'
import { type TunnelBackend, tunnelBackend } from '../config/tunnel-backend.ts'
import { FlanneletteError } from '../errors.ts'
import type { UnderlayInterface } from '../host/underlay-interface.ts'
import { fitsNetwork } from '../lease/allocate.ts'
import { ipv6HalfOf, type Lease, type LeaseAttributes } from '../lease/lease.ts'
import { withDeadline } from '../lease/store-deadline.ts'
import type { Log } from '../log.ts'
import { vtepMacOf, vxlanData } from '../store/flannel-json.ts'
import type { AgentOptions } from './agent-options.ts'
import type { VtepOutline } from './dataplane.ts'
import { withdrawStale } from './published-subnet.ts'
import type { KeptLease } from './state-directory.ts'

export interface JoinedNetwork {
  readonly rawConfig: string
  readonly config: NetworkConfig
  readonly backend: TunnelBackend
  readonly underlay: UnderlayInterface
  readonly lease: Lease
  readonly outline: VtepOutline
  /** The lease is new with this start, not one that was ours before. */
  readonly fresh: boolean
  /** False when the lease comes from the state directory because the store is away. */
  readonly confirmed: boolean
  /** What the store said when it was away. */
  readonly why: string
}

const FIRST_BACKOFF_MS = 1000
const LONGEST_BACKOFF_MS = 30_000
/** Between two calls to a server that does not answer, as flannel has it. */
const AWAY_RETRY_MS = 1000

/** @throws FlanneletteError whatever keeps the node from joining */
export async function joinNetwork(options: AgentOptions, signal: AbortSignal): Promise<JoinedNetwork> {
  const { state, log } = options
  state.prepare()
  const kept = state.readLease()
  forgetStaleFiles(kept === null ? {} : { subnet: kept.lease.subnet }, options)
  const { raw, outage } = await readConfig(options, kept, signal)
  const config = parseNetworkConfig(raw)
  const backend = tunnelBackend(config)
  for (const notice of [...config.notices, ...backend.notices]) log.warn('config-notice', notice)
  const networks = { network: config.network, ipv6Network: config.ipv6?.network ?? null }
  forgetStaleFiles(networks, options)
  const underlay = await chooseUnderlay(options)
  const publicIp = options.publicIp ?? underlay.address
  const outline = outlineOf(config, backend, underlay, log)
  await options.dataplane.prepare(outline)
  await options.claimIdentity(publicIp)
  const granted = await obtainLease({ options, kept, config, backend, publicIp, outage, signal })
  const { subnet } = granted.lease
  forgetStaleFiles({ ...networks, subnet, ipv6Subnet: ipv6HalfOf(granted.lease) }, options)
  return { rawConfig: raw, config, backend, underlay, outline, ...granted }
}

/** @throws FlanneletteError `interface-unsuitable` when the underlay's MTU leaves no room */
function outlineOf(config: NetworkConfig, backend: TunnelBackend, underlay: UnderlayInterface, log: Log): VtepOutline {
  const mtu = chooseMtu(backend.encapsulation, underlay.mtuBytes, backend.mtuBytes)
  const least = smallestOverlayBytes(config.ipv6 !== null)
  if (mtu.overlayBytes < least) {
    const message = `the underlay leaves too little for packets: ${mtu.how}, at least ${least} are needed`
    throw new FlanneletteError('interface-unsuitable', message, { remedy: 'choose another interface with --iface' })
  }
  log.info('mtu-chosen', `MTU of the overlay: ${mtu.how}`)
  if (mtu.warning !== null) log.warn('mtu-too-large', mtu.warning)
  return {
    encapsulation: backend.encapsulation,
    deviceName: backend.deviceName,
    vni: backend.vni,
    port: backend.port,
    underlayInterface: underlay.name,
    underlayAddress: underlay.address,
    network: config.network,
    ipv6Network: config.ipv6?.network ?? null,
    mtuBytes: mtu.overlayBytes,
  }
}

interface LeaseSearch {
  readonly options: AgentOptions
  readonly kept: KeptLease | null
  readonly config: NetworkConfig
  readonly backend: TunnelBackend
  readonly publicIp: number
  /** Set when the store is already known to be away. */
  readonly outage: FlanneletteError | null
  readonly signal: AbortSignal
}

/** What came of the search; see JoinedNetwork. */
type Granted = Pick<JoinedNetwork, 'lease' | 'fresh' | 'confirmed' | 'why'>

async function obtainLease(search: LeaseSearch): Promise<Granted> {
  const { options, outage } = search
  const { log } = options
  let away = outage
  if (away === null) {
    try {
      const { lease, fresh } = await acquire(search)
      const fields = { mac: formatMac(vtepMacOf(lease.attributes) ?? 0), revision: lease.revision }
      log.info('lease-acquired', `lease ${formatPrefix(lease.subnet)} is ours`, fields)
      return { lease, fresh, confirmed: true, why: '' }
    } catch (error) {
      if (!isOutage(error)) throw error
      away = error
    }
  }
  const kept = search.kept?.lease
  if (!isUsable(search, kept)) throw away
  log.warn(
    'degraded-start',
    `the store is away (${away.message}): starting from the kept lease ${formatPrefix(kept.subnet)}`,
  )
  return { lease: kept, fresh: false, confirmed: false, why: away.message }
}

/** Whether the kept lease is one that this node may start from. */
function isUsable({ publicIp, config }: LeaseSearch, kept: Lease | undefined): kept is Lease {
  return kept !== undefined && kept.attributes.publicIp === publicIp && fitsNetwork(config, kept)
}

/**
 * Tries again when the network is full, when a race was lost, and when a server is away that there is no start without;
 * all else is the caller's.
 */
async function acquire(search: LeaseSearch): Promise<Pick<Granted, 'lease' | 'fresh'>> {
  const { options, config, publicIp, signal } = search
  const { store, clock, log } = options
  const kept = search.kept?.lease
  const remembered = readSubnetFile(options.subnetFile)
  let fresh = true
  const request = {
    network: config,
    publicIp,
    previousSubnet: kept?.subnet ?? remembered?.subnet ?? null,
    previousIpv6Subnet: (kept === undefined ? null : ipv6HalfOf(kept)) ?? remembered?.ipv6Subnet ?? null,
    attributes: (existing: Lease | null) => {
      fresh = existing === null
      return attributesFor(search, existing)
    },
  }
  for (let backoffMs = FIRST_BACKOFF_MS; ; backoffMs = Math.min(2 * backoffMs, LONGEST_BACKOFF_MS)) {
    try {
      const lease = await withDeadline(clock, store.acquire(request), store.name)
      return { lease, fresh }
    } catch (error) {
      const waited = isAway(error) ? store.remote && !isUsable(search, kept) : isRetryable(error)
      if (!waited || signal.aborted) throw error
      log.error('lease-unavailable', `no lease yet, trying again: ${(error as FlanneletteError).oneLine}`)
      await delay(clock, isAway(error) ? AWAY_RETRY_MS : backoffMs, signal)
    }
  }
}

/** For vxlan with a MAC: from the state directory, else that of the lease we take over, else a new one. */
function attributesFor({ options, config, backend, publicIp }: LeaseSearch, existing: Lease | null): LeaseAttributes {
  const common = { publicIp, publicIpv6: null, backendType: backend.leaseType }
  if (backend.encapsulation === 'udp') return common
  const { state, random } = options
  const inherited = existing === null ? null : vtepMacOf(existing.attributes)
  const mac = state.readMac() ?? inherited ?? randomMac(random)
  const backendData = vxlanData(backend.vni, mac)
  // One device for both families: the MAC of the IPv6 half is the same.
  return { ...common, backendData, ...(config.ipv6 === null ? {} : { backendV6Data: backendData }) }
}

/** A random locally administered unicast MAC, IEEE 802. */
export function randomMac(random: () => number): number {
  const octets = Array.from({ length: 6 }, () => Math.floor(random() * 256))
  octets[0] = (octets[0]! & 0xfe) | 0x02
  return octets.reduce((mac, octet) => mac * 256 + octet, 0)
}

async function chooseUnderlay(options: AgentOptions): Promise<UnderlayInterface> {
  const { publicIp, log } = options
  const underlay = await options.selectUnderlay()
  for (const sentence of underlay.passedOver) log.warn('underlay-passed-over', sentence)
  const address = formatIpv4(underlay.address)
  const fields = { how: underlay.how, publicIp: formatIpv4(publicIp ?? underlay.address) }
  log.info('underlay-chosen', `underlay interface ${underlay.name}, address ${address}`, fields)
  return underlay
}

/**
 * Waits for a config that is not there yet, and for a server that does not answer. With a kept lease a store that is
 * away is survived.
 */
async function readConfig(options: AgentOptions, kept: KeptLease | null, signal: AbortSignal) {
  const { store, clock, log } = options
  for (let backoffMs = FIRST_BACKOFF_MS; ; backoffMs = Math.min(2 * backoffMs, LONGEST_BACKOFF_MS)) {
    try {
      return { raw: await withDeadline(clock, store.readNetworkConfig(), store.name), outage: null }
    } catch (error) {
      if (isOutage(error) && kept !== null) return { raw: kept.config, outage: error }
      if (!(error instanceof FlanneletteError) || signal.aborted) throw error
      const away = store.remote && isAway(error)
      if (!away && error.code !== 'config-missing') throw error
      if (away) log.warn('store-awaited', `waiting for the store: ${error.oneLine}`)
      else log.warn('config-missing', `waiting for the network config: ${error.oneLine}`)
      await delay(clock, away ? AWAY_RETRY_MS : backoffMs, signal)
    }
  }
}

/** The store says nothing, or nothing but no: what is known already has to do. */
function isOutage(error: unknown): error is FlanneletteError {
  return isAway(error) || (error instanceof FlanneletteError && error.code === 'store-refused')
}

/** No answer. */
function isAway(error: unknown): error is FlanneletteError {
  return error instanceof FlanneletteError && error.code === 'store-unreadable'
}

function isRetryable(error: unknown): boolean {
  return error instanceof FlanneletteError && error.retryable
}

function forgetStaleFiles(known: KnownSubnets, options: AgentOptions) {
  for (const path of withdrawStale(options, known)) {
    options.log.warn('subnet-file-stale', `${path} did not match this node's network or lease and was removed`)
  }
}
