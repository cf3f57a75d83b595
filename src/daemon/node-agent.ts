// The life of one node, from its options to forwarding and back.
//
// Theory of operation. Start, in this order, each step only after the one before:
//   1. remember      MAC, own lease, last leases from the state directory; a subnet.env that contradicts them goes;
//                    where none can be written the start ends
//   2. config        from the store; a missing one is waited for, an unreadable store is survived with a kept lease
//   3. underlay      interface, address, MTU
//   4. rehearsal     the dataplane opens device and socket: who cannot start must not write to the store, where a node
//                    that runs here already would take the write for another host's; then nobody else on this host may
//                    have our public address in this store
//   5. lease         acquired from the store, or kept: then the node is `degraded` until the store confirms it
//   6. dataplane     address and route; the device stays from here on
//   7. peers         from the first snapshot, or from the kept leases; rules and routes of the host meanwhile
//   8. subnet.env    and Docker options made from it: now pods may come; `ready`
// A start that fails after 5 gives back a lease that was new.
// From then on the underlay is followed: when its address changes, sockets and lease go over to the new one; when its
// MTU changes, device, workers and subnet.env take the new one.
// Each validated snapshot goes to the dataplane. A lost lease ends the node: forwarding stops and subnet.env
// is removed, since it would give pods addresses of somebody else.
import { formatMac } from '../../dataplane/index.ts'
import type { FlanneletteError } from '../errors.ts'
import type { LocalVtep } from '../host/dataplane.ts'
import type { UnderlayInterface } from '../host/underlay-interface.ts'
import { identityInWords, identityOf, type Lease, nameOf, subnetsInWords } from '../lease/lease.ts'
import { LeaseManager } from '../lease/lease-manager.ts'
import { withDeadline } from '../lease/store-deadline.ts'
import { vtepMacForIpv6, vtepMacOf } from '../store/flannel-json.ts'
import type { AgentOptions, AgentState } from './agent-options.ts'
import { ConfigCheck } from './config-check.ts'
import type { PodNetworks } from './forwarding-entries.ts'
import { type JoinedNetwork, joinNetwork } from './join-network.ts'
import { KeptLeases } from './kept-leases.ts'
import { localVtep, movedTo, standsAt, withUnderlayMtu } from './local-vtep.ts'
import { fixedAddresses, publicAddresses } from './own-attributes.ts'
import { PeerUpdates } from './peer-updates.ts'
import { refusePodAddresses, whyNotStart } from './pod-addresses.ts'
import { publishSubnet, withdrawSubnet } from './published-subnet.ts'
import { UnderlayFollower } from './underlay-follower.ts'

export class NodeAgent {
  readonly #options: AgentOptions
  readonly #peers: PeerUpdates
  readonly #kept: KeptLeases
  readonly #stopping = new AbortController()
  #local: LocalVtep | null = null
  #manager: LeaseManager | null = null
  #configCheck: ConfigCheck | null = null
  /** Where the node has moved to; `null` while it is where it started. */
  #underlay: UnderlayInterface | null = null
  #follower: UnderlayFollower | null = null
  /** The last move to another underlay address or MTU: nothing is stopped in the middle of it. */
  #moving: Promise<void> = Promise.resolve()
  #state: AgentState = 'starting'
  #storeWhy = 'not asked yet'
  #storeReachable = false
  #dataplaneStarted = false
  /** Granted in this start: to be given back if it fails. */
  #freshLease: Lease | null = null
  #firstLeases!: () => void
  #announceLoss!: (error: FlanneletteError) => void
  readonly #firstSnapshot = new Promise<void>((resolve) => {
    this.#firstLeases = resolve
  })
  /** Resolves with the reason when the lease is lost; the agent has then already stopped forwarding. */
  readonly lost = new Promise<FlanneletteError>((resolve) => {
    this.#announceLoss = resolve
  })

  constructor(options: AgentOptions) {
    this.#options = options
    const { dataplane, clock, log } = options
    this.#peers = new PeerUpdates({ dataplane, clock, log })
    this.#kept = new KeptLeases(options.state, clock)
  }

  /** Resolves once the node forwards. @throws FlanneletteError when it cannot; nothing is left behind then */
  async start(): Promise<void> {
    try {
      const joined = await joinNetwork(this.#options, this.#stopping.signal, (reachable, why) => {
        this.#storeReachable = reachable
        this.#storeWhy = why
      })
      if (joined.fresh) this.#freshLease = joined.lease
      if (this.#stopping.signal.aborted) return await this.#options.dataplane.stop('keep')
      const local = localVtep(joined)
      await this.#options.dataplane.start(local)
      this.#local = local
      this.#dataplaneStarted = true
      const mode = joined.config.enableNftables ? 'nftables' : 'iptables'
      await Promise.all([this.#forward(joined), this.#options.hostWork.start(local, mode)])
      if (this.#stopping.signal.aborted) return
      this.#publish(local)
      this.#remember(joined)
      this.#becomeReady(joined, local)
      this.#follow(joined)
    } catch (error) {
      if (this.#stopping.signal.aborted) this.#freshLease = null // a stop is no failure: the lease waits for the next start
      await this.#undoStart()
      throw error
    }
  }

  /** Stops forwarding by this process. `remove` takes device, routes and subnet.env away as well. */
  async stop(mode: 'keep' | 'remove'): Promise<void> {
    this.#end('stopping')
    await this.#moving.catch(() => {})
    const { dataplane, hostWork } = this.#options
    const dataplaneStopped = this.#dataplaneStarted ? dataplane.stop(mode) : null
    await Promise.all([dataplaneStopped, hostWork.stop(mode), this.#kept.close()])
    if (mode === 'remove') withdrawSubnet(this.#options)
    await this.#options.store.close()
  }

  /** The machine slept: whether the lease is still ours, as far as the store says. */
  async wake(): Promise<boolean> {
    return (await this.#manager?.wake()) ?? true
  }

  get state(): AgentState {
    if (this.#state !== 'ready') return this.#state
    const { pendingCount, conflicts, isBehind } = this.#peers
    const { dataplane } = this.#options
    const moving = dataplane.impairment() === null && pendingCount === 0 && !isBehind
    const complete = conflicts.length === 0 && this.hostProblem === null && !this.lacksUnderlay
    const seen = (dataplane.unseen?.() ?? null) === null
    const healthy = this.#storeReachable && this.#manager?.state === 'held' && moving && complete && seen
    return healthy ? 'ready' : 'degraded'
  }

  /** What this node lacks on its host, in one phrase; `null` when nothing. */
  get hostProblem(): string | null {
    return this.#options.hostWork.problem()
  }

  /** The address that peers send to is gone from the host. */
  get lacksUnderlay(): boolean {
    return this.#follower?.isAway === true
  }

  get local(): LocalVtep | null {
    return this.#local
  }

  get manager(): LeaseManager | null {
    return this.#manager
  }

  get peers(): PeerUpdates {
    return this.#peers
  }

  /** Looks at once at what is otherwise looked at from time to time. */
  lookNow(): void {
    this.#options.hostWork.lookNow()
    this.#configCheck?.lookNow()
  }

  /** `why` also tells what a start waits for although the store answers. */
  get store(): { readonly name: string; readonly reachable: boolean; readonly why: string } {
    return { name: this.#options.store.name, reachable: this.#storeReachable, why: this.#storeWhy }
  }

  async #forward(joined: JoinedNetwork): Promise<void> {
    const { options } = { options: this.#options }
    if (!joined.confirmed) {
      await this.#peers.offer(options.state.readLeases(), joined.lease, joined.outline, 'leases kept from the last run')
    }
    this.#manager = new LeaseManager(joined.lease, joined.confirmed, {
      store: options.store,
      clock: options.clock,
      log: options.log,
      renewMarginMs: options.renewMarginMs,
      onLeases: (leases) => this.#onLeases(leases, joined.outline),
      onOwnLease: (lease) => options.state.writeLease({ lease, config: joined.rawConfig }),
      onStore: (reachable, why) => this.#onStore(reachable, why),
      onLost: (error) => void this.#onLost(error),
    })
    this.#manager.start()
    const { store, clock, log } = options
    this.#configCheck = new ConfigCheck({
      ...{ store, clock, log, rawConfig: joined.rawConfig },
      whyNotStart: (raw) => whyNotStart(raw, { ...options, underlay: this.#underlay ?? joined.underlay }),
    })
    this.#configCheck.start()
    if (joined.confirmed) await this.#firstSnapshot
  }

  #onLeases(leases: readonly Lease[], networks: PodNetworks): void {
    const own = this.#manager?.lease
    if (own === undefined || this.#stopping.signal.aborted) return
    const generation = this.#peers.generation
    void this.#peers.offer(leases, own, networks, generation === 0 ? 'first leases' : 'lease change').then(async () => {
      if (this.#peers.generation !== generation) await this.#kept.offer(leases)
      this.#firstLeases()
    })
  }

  #onStore(reachable: boolean, why: string): void {
    const { log, store } = this.#options
    this.#storeReachable = reachable
    this.#storeWhy = why
    if (reachable) log.info('store-connected', `store ${store.name} answers`)
    else log.warn('store-disconnected', `store ${store.name} is away, forwarding goes on as before: ${why}`)
  }

  async #onLost(error: FlanneletteError): Promise<void> {
    const { log, dataplane, hostWork } = this.#options
    this.#end('lost')
    log.error('lease-lost', error.oneLine)
    withdrawSubnet(this.#options)
    await this.#moving.catch(() => {})
    const stopped = Promise.all([dataplane.stop('keep'), hostWork.stop('keep'), this.#kept.close()])
    await stopped.catch((failure: unknown) => log.error('stop-failed', String(failure)))
    this.#announceLoss(error)
  }

  #publish(local: LocalVtep): void {
    const { network, subnet, ipv6Network, ipv6Subnet, mtuBytes } = local
    const ipv6 = ipv6Network === null || ipv6Subnet === null ? null : { network: ipv6Network, subnet: ipv6Subnet }
    publishSubnet(this.#options, { network, subnet, ipv6, mtuBytes, ipMasq: this.#options.ipMasq })
  }

  /** Only now: what a failed start was granted is no memory of this node. */
  #remember({ confirmed, rawConfig, backend }: JoinedNetwork): void {
    const lease = this.#manager?.lease
    if (!confirmed || lease === undefined) return
    const { state } = this.#options
    state.writeLease({ lease, config: rawConfig })
    // Without one nothing is forgotten: it is for the day that the backend has one again.
    const [mac, ipv6Mac] = [vtepMacOf(lease.attributes), vtepMacForIpv6(lease.attributes)]
    if (backend.underlay !== 'ipv6' && mac !== null) state.writeMac(mac)
    if (backend.underlay !== 'ipv4' && ipv6Mac !== null) state.writeMac(ipv6Mac, 'ipv6')
  }

  #becomeReady(joined: JoinedNetwork, local: LocalVtep): void {
    const { log, store } = this.#options
    this.#state = 'ready'
    const { lease } = joined
    const fields = {
      subnet: nameOf(lease),
      ...(lease.ipv6Subnet === null ? {} : { ipv6Subnet: lease.ipv6Subnet }),
      publicIp: identityInWords(lease.attributes),
      device: local.deviceName,
      mac: formatMac(local.mac),
      mtu: local.mtuBytes,
      dataplane: this.#options.dataplane.kind,
      state: this.state,
    }
    log.info('ready', 'this node forwards', fields)
    store.publishReady().catch((error: unknown) => log.warn('ready-unpublished', String(error)))
  }

  #follow(joined: JoinedNetwork): void {
    const { underlayEyes: eyes, clock, log, selectUnderlay } = this.#options
    if (eyes === undefined || this.#stopping.signal.aborted) return
    const { underlay, backend } = joined
    const select = () => selectUnderlay(backend.underlay)
    const onMtu = (mtuBytes: number) => {
      this.#moving = this.#changeMtu(mtuBytes, joined)
      return this.#moving
    }
    const fixed = fixedAddresses(this.#options, underlay)
    const move = (to: UnderlayInterface) => {
      this.#moving = this.#moveUnderlay(to, joined)
      return this.#moving
    }
    this.#follower = new UnderlayFollower(underlay, { ...eyes, clock, log, select, fixed, move, onMtu })
    this.#follower.start()
  }

  /** Sockets first: peers that hear of the new address send to it at once. */
  async #moveUnderlay(to: UnderlayInterface, { backend, outline }: JoinedNetwork): Promise<void> {
    const { dataplane, claimIdentity, claimPlace } = this.#options
    const [local, manager] = [this.#local, this.#manager]
    if (local === null || manager === null || this.#stopping.signal.aborted) return
    refusePodAddresses(outline, backend, { ...this.#options, underlay: to })
    const addresses = publicAddresses(this.#options, to)
    const { attributes } = manager.lease
    if (identityOf(addresses) !== identityOf(attributes)) await claimIdentity(identityOf(addresses))
    if (!standsAt(local, to)) {
      const moved = movedTo(local, to)
      await claimPlace?.(moved)
      await dataplane.moveUnderlay(moved)
      this.#local = moved
    }
    this.#underlay = to
    await manager.rewrite({ ...attributes, ...addresses })
  }

  /** Device and workers first: pods that are made meanwhile read of an MTU that is in force. */
  async #changeMtu(underlayBytes: number, { backend, config }: JoinedNetwork): Promise<void> {
    const { dataplane, log } = this.#options
    const local = this.#local
    if (local === null || this.#stopping.signal.aborted) return
    const { changed, sentence } = withUnderlayMtu(local, underlayBytes, { backend, config })
    if (sentence === null) return
    if (changed === null) return log.warn('underlay-mtu-unfollowed', sentence)
    await dataplane.changeMtu(changed)
    this.#local = changed
    if (this.#state === 'lost') return // and subnet.env with it
    this.#publish(changed)
    log.info('mtu-changed', sentence)
  }

  #end(state: AgentState): void {
    this.#state = state
    this.#follower?.stop()
    this.#stopping.abort()
    this.#manager?.stop()
    this.#configCheck?.stop()
    this.#peers.close()
    this.#firstLeases()
  }

  async #undoStart(): Promise<void> {
    this.#end('stopping')
    const { dataplane, hostWork, store } = this.#options
    const mode = this.#dataplaneStarted ? 'remove' : 'keep'
    await Promise.allSettled([dataplane.stop(mode), hostWork.stop(mode), this.#kept.close()])
    await this.#giveBack()
    await store.close()
  }

  async #giveBack(): Promise<void> {
    if (this.#freshLease === null) return
    const { store, clock, log } = this.#options
    const lease = this.#manager?.lease ?? this.#freshLease
    try {
      await withDeadline(clock, store.release(lease), store.name)
      log.info('lease-released', `lease ${subnetsInWords(lease)} was given back`)
    } catch (error) {
      log.debug('lease-kept', `lease ${subnetsInWords(lease)} could not be given back: ${String(error)}`)
    }
  }
}
