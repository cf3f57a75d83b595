// What a driver asks of the kernel besides what its descriptors say: joined packets towards the TUN.
import { type Feature, type FeatureName, isKernelAtLeast, lost, unwanted, works } from '../../dataplane/index.ts'

/** Older kernels lose merged UDP that reaches a kernel tunnel of a pod (fixed in 6.8.5). */
const MERGES_UDP_FROM = [6, 8, 5] as const
const JOINED: readonly FeatureName[] = ['tun-gso-tcp4', 'tun-gso-tcp6', 'tun-gso-udp', 'tun-short-tail', 'tun-checksum']

export interface DriverWishes {
  readonly driver: 'offload' | 'plain'
  readonly tunOffload: boolean
}

/** Whether packets of each kind are joined for the TUN. `kernelRelease` as `uname -r` prints it. */
export function joiningFeatures(wishes: DriverWishes, kernelRelease: string): Feature[] {
  const reason =
    wishes.driver === 'plain' ? 'one packet a call' : wishes.tunOffload ? null : 'switched off by --tun-offload off'
  return JOINED.map((name) => {
    if (reason !== null) return unwanted(name, reason)
    if (name !== 'tun-gso-udp' || isKernelAtLeast(kernelRelease, MERGES_UDP_FROM)) return works(name, 'tried at work')
    return lost(name, `kernel ${kernelRelease} may lose joined UDP of pods with tunnels of their own`)
  })
}

/** What there is to say of the socket of the plain driver. */
export function plainSocketFeatures(): Feature[] {
  return [unwanted('udp-gso', 'one packet a call'), unwanted('udp-gro', 'one packet a call')]
}
