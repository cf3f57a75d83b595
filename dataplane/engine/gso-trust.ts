// Which kinds of joined packets, and whether open checksums, the TUN is still given. Some kernels refuse a kind that
// others take (Linux 6.6.44 and 6.10.3 for instance refuse all whose last segment is short); a kind that was refused
// often enough is not tried again.
import * as virtioNet from '../wire/virtio-net.ts'
import { type Counters, cellOf } from './counters.ts'

/** Refusals of a kind before it is given up. */
const REFUSALS = 3

interface Kind {
  trusted: boolean
  refusals: number
  readonly downgrade: number
}

export class GsoTrust {
  readonly #counters: Counters
  readonly #tcp4: Kind
  readonly #tcp6: Kind
  readonly #udp: Kind
  readonly #shortTail: Kind
  readonly #openChecksum: Kind

  constructor(counters: Counters, options: { readonly mergeTcp: boolean; readonly mergeUdp: boolean }) {
    this.#counters = counters
    const { mergeTcp, mergeUdp } = options
    this.#tcp4 = { trusted: mergeTcp, refusals: 0, downgrade: cellOf('downgrade.tun-gso-tcp4') }
    this.#tcp6 = { trusted: mergeTcp, refusals: 0, downgrade: cellOf('downgrade.tun-gso-tcp6') }
    this.#udp = { trusted: mergeUdp, refusals: 0, downgrade: cellOf('downgrade.tun-gso-udp') }
    this.#shortTail = { trusted: true, refusals: 0, downgrade: cellOf('downgrade.tun-short-tail') }
    this.#openChecksum = { trusted: true, refusals: 0, downgrade: cellOf('downgrade.tun-checksum') }
  }

  /** Whether packets of that kind may be joined at all. */
  mayJoin(isTcp: boolean, version: number): boolean {
    if (!isTcp) return this.#udp.trusted
    return version === 4 ? this.#tcp4.trusted : this.#tcp6.trusted
  }

  /** Whether the last of the joined packets may be shorter than the others. */
  get shortTail(): boolean {
    return this.#shortTail.trusted
  }

  /**
   * Whether a packet that came joined (or, by GSO_NONE, with an open checksum) may be written so: not once that was
   * given up.
   */
  takes(gsoType: number, hasShortTail: boolean): boolean {
    if (hasShortTail && this.#shortTail.refusals >= REFUSALS) return false
    return this.#kindOf(gsoType).refusals < REFUSALS
  }

  /** The kernel refused this, and took the same packets one by one, whole. The short tail is blamed first. */
  refused(gsoType: number, hasShortTail: boolean): void {
    const kind = hasShortTail && this.#shortTail.trusted ? this.#shortTail : this.#kindOf(gsoType)
    kind.refusals += 1
    if (kind.refusals !== REFUSALS) return
    kind.trusted = false
    this.#counters.add(kind.downgrade, 1)
  }

  #kindOf(gsoType: number): Kind {
    if (gsoType === virtioNet.GSO_NONE) return this.#openChecksum
    if (gsoType === virtioNet.GSO_UDP_L4) return this.#udp
    return gsoType === virtioNet.GSO_TCPV4 ? this.#tcp4 : this.#tcp6
  }
}
