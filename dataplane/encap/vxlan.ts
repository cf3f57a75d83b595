// VXLAN as flannel uses it (RFC 7348): VXLAN header, then an inner Ethernet header between the two VTEPs' MACs.
import type { DropReason } from '../drop-reason.ts'
import type { ForwardingTable } from '../forwarding/forwarding-table.ts'
import * as ethernet from '../wire/ethernet.ts'
import * as ipv4 from '../wire/ipv4.ts'
import * as vxlan from '../wire/vxlan.ts'
import type { Encapsulation } from './encapsulation.ts'

const INNER_ETHERNET = vxlan.HEADER_LEN

export class VxlanEncapsulation implements Encapsulation {
  readonly name = 'vxlan'
  readonly headerBytes = vxlan.HEADER_LEN + ethernet.HEADER_LEN
  readonly #macHigh: number
  readonly #macLow: number
  readonly #vniWord: number

  /** `vni` is 24 bits, `mac` our own VTEP's MAC as a 48-bit number. */
  constructor(options: { readonly vni: number; readonly mac: number }) {
    this.#macHigh = Math.floor(options.mac / 2 ** 32)
    this.#macLow = options.mac | 0
    this.#vniWord = options.vni << 8
  }

  write(view: DataView, at: number, table: ForwardingTable, entry: number, version: number): void {
    vxlan.write(view, at, table.vni(entry))
    const etherType = version === 4 ? ethernet.ETHERTYPE_IPV4 : ethernet.ETHERTYPE_IPV6
    const high = table.macHigh(entry)
    const low = table.macLow(entry)
    ethernet.writeHalves(view, at + INNER_ETHERNET, high, low, this.#macHigh, this.#macLow, etherType)
  }

  check(view: DataView, at: number, length: number): DropReason | null {
    if (length < this.headerBytes) return 'vxlan-short'
    if (vxlan.getWord0(view, at) !== vxlan.WORD0 || (vxlan.getWord1(view, at) | 0) !== this.#vniWord) {
      return this.#whyNotOurs(view, at)
    }
    const inner = at + INNER_ETHERNET
    if (!ethernet.hasDestination(view, inner, this.#macHigh, this.#macLow)) return 'inner-destination-mac'
    // As the kernel: our own MAC is a loop, zero and group addresses are nobody (drivers/net/vxlan,
    // is_valid_ether_addr).
    if (ethernet.hasGroupSource(view, inner) || ethernet.hasSource(view, inner, 0, 0)) return 'inner-source-mac'
    if (ethernet.hasSource(view, inner, this.#macHigh, this.#macLow)) return 'inner-source-mac'
    const etherType = ethernet.getEtherType(view, inner)
    if (etherType !== ethernet.ETHERTYPE_IPV4 && etherType !== ethernet.ETHERTYPE_IPV6) return 'inner-ethertype'
    if (length === this.headerBytes) return 'truncated'
    const version = etherType === ethernet.ETHERTYPE_IPV4 ? 4 : 6
    return ipv4.getVersion(view, at + this.headerBytes) === version ? null : 'bad-version'
  }

  /** The VXLAN header is not exactly ours: the same order of checks as the kernel's vxlan_rcv. */
  #whyNotOurs(view: DataView, at: number): DropReason {
    if ((vxlan.getFlags(view, at) & vxlan.FLAG_VNI_VALID) === 0) return 'vxlan-no-vni'
    if (vxlan.getVni(view, at) !== this.#vniWord >>> 8) return 'vni-unknown'
    return 'vxlan-reserved-bits'
  }
}
