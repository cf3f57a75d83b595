// VXLAN frames as node A's peers send them to node B, right by default and wrong where a test says so.
import * as ethernet from '../../dataplane/wire/ethernet.ts'
import * as ipv4 from '../../dataplane/wire/ipv4.ts'
import * as vxlan from '../../dataplane/wire/vxlan.ts'
import { NODE_A, NODE_B, VNI } from './engine-pair.ts'
import { viewOf } from './packets.ts'

/** Bytes in front of the inner packet. */
export const ENCAP_BYTES = vxlan.HEADER_LEN + ethernet.HEADER_LEN

export interface FrameOptions {
  readonly vni?: number
  readonly flags?: number
  readonly reserved1?: number
  readonly reserved2?: number
  readonly destinationMac?: number
  readonly sourceMac?: number
  /** That of the inner packet's family by default. */
  readonly etherType?: number
  /** Bytes behind the inner packet, as Ethernet pads short frames. */
  readonly padding?: number
}

/** The frame that carries `inner` from node A to node B. */
export function vxlanFrame(inner: Uint8Array, options: FrameOptions = {}): Uint8Array {
  const { padding = 0, vni = VNI, flags = vxlan.FLAG_VNI_VALID, reserved1 = 0, reserved2 = 0 } = options
  const isIpv6 = inner.length > 0 && ipv4.getVersion(viewOf(inner), 0) === 6
  const ownType = isIpv6 ? ethernet.ETHERTYPE_IPV6 : ethernet.ETHERTYPE_IPV4
  const { destinationMac = NODE_B.mac, sourceMac = NODE_A.mac, etherType = ownType } = options
  const frame = new Uint8Array(ENCAP_BYTES + inner.length + padding).fill(0xee, ENCAP_BYTES + inner.length)
  vxlan.emit({ flags, reserved1, vni, reserved2 }, frame, 0)
  ethernet.write(viewOf(frame), vxlan.HEADER_LEN, destinationMac, sourceMac, etherType)
  frame.set(inner, ENCAP_BYTES)
  return frame
}

/** Frames of one size, the last one perhaps shorter, as one merged train. */
export function train(frames: readonly Uint8Array[]): { readonly bytes: Uint8Array; readonly segmentSize: number } {
  return { bytes: Uint8Array.from(Buffer.concat(frames)), segmentSize: frames[0]!.length }
}
