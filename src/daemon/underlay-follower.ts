// Follows the underlay at run time. Whenever something on the host changes, and every ten seconds at the latest, the
// chosen interface is looked at. As long as it carries its address nothing moves, even if the rule would choose another
// one by now. Once the address is gone the choice is made again by the same rule; an answer that holds for five seconds
// is where the node moves. An address that comes back within that time has cost nothing.
// Another MTU is told at once.
import { formatAddress, type UnderlayAddress } from '../../dataplane/index.ts'
import type { Clock } from '../clock.ts'
import { FlanneletteError } from '../errors.ts'
import type { LinkInfo } from '../host/ip.ts'
import type { Doorbell } from '../host/ip-monitor.ts'
import { LOOK_MS, Lookout } from '../host/lookout.ts'
import { carries, type UnderlayInterface } from '../host/underlay-interface.ts'
import type { Log } from '../log.ts'

/** How long a new address must stay before a lease is written for it, milliseconds. */
export const SETTLE_MS = 5000
/** The next look while there is no address at all, milliseconds: the rule may wait for a route, which rings no bell. */
const SEARCH_MS = 1000

export interface UnderlayEyes {
  /** Rings when something may have changed. */
  readonly doorbell: (ring: () => void) => Doorbell
  /** The interface as it is now, `null` when it is gone. */
  readonly readLink: (name: string) => Promise<LinkInfo | null>
}

export interface UnderlayFollowerOptions extends UnderlayEyes {
  readonly clock: Clock
  readonly log: Log
  readonly select: () => Promise<UnderlayInterface>
  /** Addresses of the interface that peers were told and a person has fixed: nothing may replace them. */
  readonly fixed: readonly UnderlayAddress[]
  /** Goes over to another address. @throws FlanneletteError when that is impossible for now */
  readonly move: (to: UnderlayInterface) => Promise<void>
  /** The interface has another MTU now, in bytes; tried again when it fails. */
  readonly onMtu: (mtuBytes: number) => Promise<void>
}

export class UnderlayFollower {
  readonly #options: UnderlayFollowerOptions
  #current: UnderlayInterface
  /** Where to move, and since when by the boot clock. */
  #next: { readonly to: UnderlayInterface; readonly sinceMs: number } | null = null
  #mtuBytes: number
  #saidFixed = false
  #isAway = false
  #lookout: Lookout | null = null
  #stopped = false

  constructor(current: UnderlayInterface, options: UnderlayFollowerOptions) {
    this.#current = current
    this.#mtuBytes = current.mtuBytes
    this.#options = options
  }

  /** The interface is without its address, which peers send to, and no other has been taken yet. */
  get isAway(): boolean {
    return this.#isAway
  }

  start(): void {
    const { clock, doorbell } = this.#options
    this.#lookout = new Lookout({ clock, doorbell, look: () => this.#look() })
  }

  stop(): void {
    this.#stopped = true
    this.#lookout?.stop()
  }

  /** Resolves with the milliseconds until the next look. */
  async #look(): Promise<number> {
    try {
      return await this.#followed()
    } catch (error) {
      const why = error instanceof FlanneletteError ? error.oneLine : String(error)
      this.#options.log.warn('underlay-unfollowed', `the underlay cannot be followed for now: ${why}`)
      return LOOK_MS
    }
  }

  /** One look and what follows from it. Resolves with the milliseconds until the next one. */
  async #followed(): Promise<number> {
    const { clock, readLink } = this.#options
    const link = await readLink(this.#current.name)
    this.#isAway = link === null || !addressesOf(this.#current).every((address) => carries(link, address))
    if (link !== null && !this.#isAway) {
      this.#next = null
      this.#saidFixed = false
      await this.#compareMtu(link.mtu)
      return LOOK_MS
    }
    const lost = this.#options.fixed.find((address) => link === null || !carries(link, address))
    const to = await this.#choice(lost)
    if (to === null) {
      this.#next = null
      return lost === undefined ? SEARCH_MS : LOOK_MS
    }
    if (this.#next === null || !samePlace(this.#next.to, to)) this.#next = { to, sinceMs: clock.bootMs() }
    const leftMs = this.#next.sinceMs + SETTLE_MS - clock.bootMs()
    if (leftMs > 0) return leftMs
    await this.#move(to)
    return LOOK_MS
  }

  /** Where the rule leads now; `null` when nowhere else. `lost` is a fixed address that is away. */
  async #choice(lost: UnderlayAddress | undefined): Promise<UnderlayInterface | null> {
    const { select, log } = this.#options
    if (lost !== undefined) {
      const flag = typeof lost === 'number' ? '--public-ip' : '--public-ipv6'
      const sentence = `${formatAddress(lost)} was fixed by ${flag}: no other address is taken`
      if (!this.#saidFixed) log.warn('underlay-fixed', sentence)
      this.#saidFixed = true
      return null
    }
    try {
      const to = await select()
      return samePlace(to, this.#current) ? null : to
    } catch (error) {
      if (error instanceof FlanneletteError && error.code === 'interface-unsuitable') return null
      throw error
    }
  }

  async #move(to: UnderlayInterface): Promise<void> {
    if (this.#stopped) return
    const from = this.#current
    await this.#options.move(to)
    this.#current = to
    this.#isAway = false
    this.#next = null
    const [before, now] = [from, to].map((one) => `${addressesOf(one).map(formatAddress).join(' and ')} on ${one.name}`)
    this.#options.log.info('underlay-moved', `the underlay is ${now} now, it was ${before}`, { how: to.how })
    await this.#compareMtu(to.mtuBytes)
  }

  async #compareMtu(mtuBytes: number): Promise<void> {
    if (mtuBytes === this.#mtuBytes || this.#stopped) return
    await this.#options.onMtu(mtuBytes)
    this.#mtuBytes = mtuBytes
  }
}

function samePlace(one: UnderlayInterface, other: UnderlayInterface): boolean {
  return one.name === other.name && one.address === other.address && one.ipv6Address === other.ipv6Address
}

/** One of each family that tunnels go between. */
function addressesOf({ address, ipv6Address }: UnderlayInterface): UnderlayAddress[] {
  return ipv6Address === undefined ? [address] : [address, ipv6Address]
}
