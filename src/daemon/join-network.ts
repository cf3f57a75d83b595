// The first half of a start: from what the node remembers and what the store says to a lease.
import { formatAddress, formatMac } from '../../dataplane/index.ts'
import { delay } from '../clock.ts'
import { checkNetworkConfig } from '../config/check-network-config.ts'
import { chooseMtu, smallestOverlayBytes } from '../config/mtu.ts'
import type { NetworkConfig } from '../config/network-config.ts'
import { type KnownSubnets, readSubnetFile } from '../config/subnet-file.ts'
import type { TunnelBackend } from '../config/tunnel-backend.ts'
import { FlanneletteError } from '../errors.ts'
import type { Ipv6Device, VtepOutline } from '../host/dataplane.ts'
import type { UnderlayInterface } from '../host/underlay-interface.ts'
import { fitsNetwork } from '../lease/allocate.ts'
import {
  identityInWords,
  identityOf,
  ipv6HalfOf,
  type Lease,
  type PublicAddresses,
  subnetsInWords,
} from '../lease/lease.ts'
import { withDeadline } from '../lease/store-deadline.ts'
import type { Log } from '../log.ts'
import type { AgentOptions } from './agent-options.ts'
import { attributesFor, publicAddresses, vtepMacs } from './own-attributes.ts'
import { refusePodAddresses } from './pod-addresses.ts'
import { tryPublishing, withdrawStale } from './published-subnet.ts'
import {
  AWAY_RETRY_MS,
  FIRST_START_BACKOFF_MS,
  isAway,
  isOutage,
  LONGEST_START_BACKOFF_MS,
  readConfig,
  type TellStore,
} from './start-config.ts'
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
}

/** @throws FlanneletteError whatever keeps the node from joining */
export async function joinNetwork(
  options: AgentOptions,
  signal: AbortSignal,
  tell: TellStore = () => {},
): Promise<JoinedNetwork> {
  const { state, log } = options
  state.prepare()
  const kept = state.readLease()
  forgetStaleFiles(kept === null ? {} : { subnet: kept.lease.subnet }, options)
  tryPublishing(options)
  const { raw, config, backend, outage } = await readConfig({ options, kept, signal, tell })
  for (const { message } of checkNetworkConfig(raw).findings) log.warn('config-notice', message)
  const networks = { network: config.ipv4?.network ?? null, ipv6Network: config.ipv6?.network ?? null }
  forgetStaleFiles(networks, options)
  const underlay = await options.selectUnderlay(backend.underlay)
  const addresses = publicAddresses(options, underlay)
  sayUnderlay(underlay, addresses, options)
  refuseOtherGateway(backend, addresses, underlay)
  refusePodAddresses(networks, backend, { ...options, underlay })
  const outline = outlineOf(config, backend, underlay, log)
  sayIdleFlags(backend, options)
  await options.claimPlace?.(outline)
  await options.dataplane.prepare(outline)
  await options.claimIdentity(identityOf(addresses))
  const granted = await obtainLease({ options, kept, config, backend, addresses, outage, signal, tell })
  const { subnet } = granted.lease
  forgetStaleFiles({ ...networks, subnet, ipv6Subnet: ipv6HalfOf(granted.lease) }, options)
  return { rawConfig: raw, config, backend, underlay, outline, ...granted }
}

/** @throws FlanneletteError `interface-unsuitable` when the underlay's MTU leaves no room */
function outlineOf(config: NetworkConfig, backend: TunnelBackend, underlay: UnderlayInterface, log: Log): VtepOutline {
  const { ipv6DeviceName } = backend
  const carriesIpv6 = config.ipv6 !== null && ipv6DeviceName === null
  const mtuBytes = overlayMtu({ backend, underlay, log }, carriesIpv6, backend.underlay === 'ipv6')
  const ipv6Device: Ipv6Device | null =
    ipv6DeviceName === null || underlay.ipv6Address === undefined
      ? null
      : {
          deviceName: ipv6DeviceName,
          underlayAddress: underlay.ipv6Address,
          mtuBytes: overlayMtu({ backend, underlay, log }, true, true),
        }
  return {
    encapsulation: backend.encapsulation,
    deviceName: backend.deviceName,
    vni: backend.vni,
    port: backend.port,
    underlayInterface: underlay.name,
    underlayAddress: underlay.address,
    network: config.ipv4?.network ?? null,
    ipv6Network: config.ipv6?.network ?? null,
    mtuBytes,
    ...(ipv6Device === null ? {} : { ipv6Device }),
    ...(backend.directRouting === true ? { directRouting: true } : {}),
    ...(backend.plain === undefined ? {} : { plain: backend.plain }),
    ...(backend.plain === undefined || underlay.ipv6Address === undefined
      ? {}
      : { underlayIpv6: underlay.ipv6Address }),
    groupPolicy: backend.groupPolicy ?? false,
    learning: backend.learning ?? false,
  }
}

/** @throws FlanneletteError `interface-unsuitable`: peers take the public address for a neighbour on the interface's link */
function refuseOtherGateway(
  { plain }: TunnelBackend,
  { publicIp, publicIpv6 }: PublicAddresses,
  underlay: UnderlayInterface,
) {
  if (plain?.type !== 'host-gw') return
  const { name, address, ipv6Address } = underlay
  const own = [address, ...(ipv6Address === undefined ? [] : [ipv6Address])].map(formatAddress)
  const told = [...(publicIp === 0 ? [] : [formatAddress(publicIp)]), ...(publicIpv6 === null ? [] : [publicIpv6])]
  const other = told.find((text) => !own.includes(text))
  if (other === undefined) return
  const message = `the public address ${other} is not that of ${name} (${own.join(', ')}), and routes of peers lead to it`
  throw new FlanneletteError('interface-unsuitable', message, {
    remedy: 'leave --public-ip out, choose its interface with --iface, or take a backend with a tunnel',
  })
}

interface MtuParts {
  readonly backend: TunnelBackend
  readonly underlay: UnderlayInterface
  readonly log: Log
}

/** That of one device. @throws FlanneletteError `interface-unsuitable` */
function overlayMtu({ backend, underlay, log }: MtuParts, carriesIpv6: boolean, overIpv6: boolean): number {
  const mtu = chooseMtu(backend.encapsulation, underlay.mtuBytes, backend.mtuBytes, overIpv6)
  const least = smallestOverlayBytes(carriesIpv6)
  if (mtu.overlayBytes < least) {
    const message = `the underlay leaves too little for packets: ${mtu.how}, at least ${least} are needed`
    throw new FlanneletteError('interface-unsuitable', message, { remedy: 'choose another interface with --iface' })
  }
  const which = backend.underlay === 'dual' && overIpv6 ? ' over IPv6' : ''
  log.info('mtu-chosen', `MTU of the overlay${which}: ${mtu.how}`)
  if (mtu.warning !== null && which === '') log.warn('mtu-too-large', mtu.warning)
  return mtu.overlayBytes
}

interface LeaseSearch {
  readonly options: AgentOptions
  readonly kept: KeptLease | null
  readonly config: NetworkConfig
  readonly backend: TunnelBackend
  readonly addresses: PublicAddresses
  /** Set when the store is already known to be away, or to hold no config that could be used. */
  readonly outage: FlanneletteError | null
  readonly signal: AbortSignal
  readonly tell: TellStore
}

/** What came of the search; see JoinedNetwork. */
type Granted = Pick<JoinedNetwork, 'lease' | 'fresh' | 'confirmed'>

async function obtainLease(search: LeaseSearch): Promise<Granted> {
  const { options, outage } = search
  const { log } = options
  let away = outage
  if (away === null) {
    try {
      const { lease, fresh } = await acquire(search)
      const macs = vtepMacs(lease.attributes).map(formatMac).join(' and ')
      const fields = { mac: macs, revision: lease.revision }
      log.info('lease-acquired', `lease ${subnetsInWords(lease)} is ours`, fields)
      return { lease, fresh, confirmed: true }
    } catch (error) {
      if (!isOutage(error)) throw error
      away = error
    }
  }
  const kept = search.kept?.lease
  if (!isUsable(search, kept)) throw away
  const why = away.code === 'config-invalid' ? 'the config in the store cannot be used' : 'the store is away'
  log.warn('degraded-start', `${why} (${away.message}): starting from the kept lease ${subnetsInWords(kept)}`)
  return { lease: kept, fresh: false, confirmed: false }
}

/** Whether the kept lease is one that this node may start from. */
function isUsable({ addresses, config }: LeaseSearch, kept: Lease | undefined): kept is Lease {
  return kept !== undefined && identityOf(kept.attributes) === identityOf(addresses) && fitsNetwork(config, kept)
}

/**
 * Tries again when the network is full, when a race was lost, and when a server is away that there is no start without;
 * all else is the caller's.
 */
async function acquire(search: LeaseSearch): Promise<Pick<Granted, 'lease' | 'fresh'>> {
  const { options, config, addresses, signal, tell } = search
  const { store, clock, log } = options
  const kept = search.kept?.lease
  const remembered = readSubnetFile(options.subnetFile)
  let fresh = true
  const request = {
    network: config,
    publicIp: identityOf(addresses),
    previousSubnet: kept?.subnet ?? remembered?.subnet ?? null,
    previousIpv6Subnet: (kept === undefined ? null : ipv6HalfOf(kept)) ?? remembered?.ipv6Subnet ?? null,
    attributes: (existing: Lease | null) => {
      fresh = existing === null
      return attributesFor({ ...search, kept: kept ?? null, leaseData: options.dataplane.leaseData?.() }, existing)
    },
  }
  for (let backoffMs = FIRST_START_BACKOFF_MS; ; backoffMs = Math.min(2 * backoffMs, LONGEST_START_BACKOFF_MS)) {
    try {
      const lease = await withDeadline(clock, store.acquire(request), store.name)
      tell(true, '')
      return { lease, fresh }
    } catch (error) {
      tell(!isOutage(error), messageOf(error))
      const waited = isAway(error) ? store.remote && !isUsable(search, kept) : isRetryable(error)
      if (!waited || signal.aborted) throw error
      log.error('lease-unavailable', `no lease yet, trying again: ${(error as FlanneletteError).oneLine}`)
      await delay(clock, isAway(error) ? AWAY_RETRY_MS : backoffMs, signal)
    }
  }
}

function sayUnderlay(underlay: UnderlayInterface, addresses: PublicAddresses, { publicIpv6, log }: AgentOptions): void {
  for (const sentence of underlay.passedOver) log.warn('underlay-passed-over', sentence)
  const { address, ipv6Address, name, how } = underlay
  const words = [address, ...(ipv6Address === undefined ? [] : [ipv6Address])].map(formatAddress).join(' and ')
  const { publicIpv6: told } = addresses
  const fields = { how, publicIp: identityInWords(addresses), ...(told === null ? {} : { publicIpv6: told }) }
  log.info('underlay-chosen', `underlay interface ${name}, address ${words}`, fields)
  if (publicIpv6 === undefined || told !== null) return
  log.warn('option-without-effect', '--public-ipv6 has no effect: the network config has no tunnel over IPv6')
}

/** A backend without a tunnel looks at none of them. */
function sayIdleFlags({ plain }: TunnelBackend, { tunnelFlags = [], log }: AgentOptions): void {
  if (plain === undefined) return
  for (const source of tunnelFlags) {
    log.warn('option-without-effect', `${source} has no effect: the backend ${plain.type} has no tunnel`)
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

function isRetryable(error: unknown): boolean {
  return error instanceof FlanneletteError && error.retryable
}

function forgetStaleFiles(known: KnownSubnets, options: AgentOptions) {
  for (const path of withdrawStale(options, known)) {
    options.log.warn('subnet-file-stale', `${path} did not match this node's network or lease and was removed`)
  }
}
