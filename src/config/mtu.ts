// How large an inner packet may be. The `MTU` of flannel's config is the underlay's: what encapsulation adds is
// subtracted from it.
import {
  LEAST_IPV4_MTU_BYTES,
  LEAST_IPV6_MTU_BYTES,
  OVERHEAD_BYTES,
  WIDE_OVERHEAD_BYTES,
} from '../../dataplane/index.ts'

/** Smallest MTU of an overlay, in bytes. */
const SMALLEST_OVERLAY_BYTES = LEAST_IPV4_MTU_BYTES

/** The same for an overlay that carries IPv6; Linux takes IPv6 off a device with less. */
const SMALLEST_IPV6_OVERLAY_BYTES = LEAST_IPV6_MTU_BYTES

/** What is put around packets; `none` adds nothing. */
export type Encapsulation = keyof typeof OVERHEAD_BYTES | 'none'

/** @throws Error for `none`: a fault of whoever asked for a tunnel */
export function tunnelOf(encapsulation: Encapsulation): Exclude<Encapsulation, 'none'> {
  if (encapsulation === 'none') throw new Error('there is no tunnel to be made')
  return encapsulation
}

export interface MtuChoice {
  /** MTU of the overlay device, and `FLANNEL_MTU`. */
  readonly overlayBytes: number
  /** The sum as a person checks it: `underlay 1420 − overhead 50 = 1370`. */
  readonly how: string
  /** Set when the configured MTU does not fit through the interface. */
  readonly warning: string | null
}

/** Smallest MTU of an overlay that carries these families, in bytes. */
export function smallestOverlayBytes(hasIpv6: boolean): number {
  return hasIpv6 ? SMALLEST_IPV6_OVERLAY_BYTES : SMALLEST_OVERLAY_BYTES
}

/** What a tunnel adds to a packet, in bytes: more between IPv6 addresses of hosts. */
export function overheadBytes(encapsulation: Encapsulation, overIpv6: boolean): number {
  if (encapsulation === 'none') return 0
  return (overIpv6 ? WIDE_OVERHEAD_BYTES : OVERHEAD_BYTES)[encapsulation]
}

/** The overlay MTU. `configured` is the config's underlay MTU in bytes, `null` to take the interface's. */
export function chooseMtu(
  encapsulation: Encapsulation,
  interfaceBytes: number,
  configured: number | null,
  overIpv6 = false,
): MtuChoice {
  const overhead = overheadBytes(encapsulation, overIpv6)
  const underlay = configured ?? interfaceBytes
  const overlayBytes = underlay - overhead
  const warning =
    underlay > interfaceBytes
      ? `Backend.MTU ${underlay} is larger than the interface's ${interfaceBytes}: large packets will be fragmented or lost`
      : null
  return { overlayBytes, how: `underlay ${underlay} − overhead ${overhead} = ${overlayBytes}`, warning }
}

/** The overlay of a node that runs, in bytes. */
export interface RunningOverlay {
  readonly mtuBytes: number
  readonly hasIpv6: boolean
  /** Whether the tunnel is between IPv6 addresses of hosts. */
  readonly overIpv6?: boolean
}

/** What another MTU of the interface means for a node that runs. */
export interface MtuChange {
  /** The overlay's from now on, in bytes; the former one when it stays. */
  readonly overlayBytes: number
  /** What a person should read of it; `null` when all is as it was. */
  readonly sentence: string | null
}

/** An MTU from the config is a person's word and stays; so does one that the interface leaves too little room for. */
export function followMtu(
  encapsulation: Encapsulation,
  interfaceBytes: number,
  configured: number | null,
  { mtuBytes, hasIpv6, overIpv6 = false }: RunningOverlay,
): MtuChange {
  const { overlayBytes, how, warning } = chooseMtu(encapsulation, interfaceBytes, configured, overIpv6)
  const stays = `the interface has an MTU of ${interfaceBytes} now, the overlay keeps ${mtuBytes}`
  if (configured !== null) {
    const danger = warning === null ? '' : `; ${warning}`
    return { overlayBytes: mtuBytes, sentence: `${stays}: Backend.MTU ${configured} is fixed by the config${danger}` }
  }
  const least = smallestOverlayBytes(hasIpv6)
  if (overlayBytes < least) {
    return { overlayBytes: mtuBytes, sentence: `${stays}: ${how} is too little, at least ${least} are needed` }
  }
  if (overlayBytes === mtuBytes) return { overlayBytes, sentence: null }
  const pods = 'new pods get it from subnet.env, those that are there keep theirs until they are made anew'
  return { overlayBytes, sentence: `MTU of the overlay: ${how}, it was ${mtuBytes}; ${pods}` }
}
