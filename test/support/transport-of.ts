// Where the transport header of a packet starts and whose it is, for either family: what twins and complaints ask
// first.
import * as ipv4 from '../../dataplane/wire/ipv4.ts'
import * as ipv6 from '../../dataplane/wire/ipv6.ts'
import { walkExtensions, walkedOffset, walkedProtocol } from '../../dataplane/wire/ipv6-extension.ts'

export interface Transport {
  readonly version: number
  readonly protocol: number
  /** IP header with options or extension headers. */
  readonly ipBytes: number
  /** Bytes of the whole packet, by its own header. */
  readonly length: number
}

/** For whole packets. @throws Error when the extension headers lead nowhere */
export function transportOf(packet: Uint8Array): Transport {
  const view = new DataView(packet.buffer, packet.byteOffset, packet.byteLength)
  const version = ipv4.getVersion(view, 0)
  if (version === 4) {
    const length = ipv4.getTotalLength(view, 0)
    return { version, protocol: ipv4.getProtocol(view, 0), ipBytes: ipv4.getHeaderBytes(view, 0), length }
  }
  const length = ipv6.HEADER_LEN + ipv6.getPayloadLength(view, 0)
  const walked = walkExtensions(view, 0, packet.length)
  if (walked < 0) throw new Error(`extension headers of ${packet.length} bytes lead nowhere`)
  return { version, protocol: walkedProtocol(walked), ipBytes: walkedOffset(walked), length }
}
