// How large an inner packet may be. The `MTU` of flannel's config is the underlay's: what encapsulation adds is
// subtracted from it.
import { OVERHEAD_BYTES } from '../../dataplane/index.ts'

/** Smallest MTU of an overlay, in bytes: every IPv4 host must take packets of this size, RFC 791 section 3.1. */
export const SMALLEST_OVERLAY_BYTES = 576

/** The same for an overlay that carries IPv6, RFC 8200 section 5; Linux takes IPv6 off a device with less. */
export const SMALLEST_IPV6_OVERLAY_BYTES = 1280

export interface MtuChoice {
  /** MTU of the overlay device, and `FLANNEL_MTU`. */
  readonly overlayBytes: number
  /** The sum as a person checks it: `underlay 1420 − overhead 50 = 1370`. */
  readonly how: string
  /** Set when the configured MTU does not fit through the interface. */
  readonly warning: string | null
}

/** The overlay MTU. `configured` is the config's underlay MTU in bytes, `null` to take the interface's. */
export function chooseMtu(
  encapsulation: keyof typeof OVERHEAD_BYTES,
  interfaceBytes: number,
  configured: number | null,
): MtuChoice {
  const overhead = OVERHEAD_BYTES[encapsulation]
  const underlay = configured ?? interfaceBytes
  const overlayBytes = underlay - overhead
  const warning =
    underlay > interfaceBytes
      ? `Backend.MTU ${underlay} is larger than the interface's ${interfaceBytes}: large packets will be fragmented or lost`
      : null
  return { overlayBytes, how: `underlay ${underlay} − overhead ${overhead} = ${overlayBytes}`, warning }
}
