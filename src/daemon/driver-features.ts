// What a driver asks of the kernel besides what its descriptors say, and what it does without.
import { release } from 'node:os'
import {
  chooseUnderlayFeatures,
  type Feature,
  type FeatureName,
  isKernelAtLeast,
  lost,
  type OpenTun,
  type OpenUdpSocket,
  receiveDatagramsOneByOne,
  type UdpGsoMode,
  type UnderlayAddress,
  unwanted,
  type WorkerDriver,
  works,
} from '../../dataplane/index.ts'

/** Older kernels lose merged UDP that reaches a kernel tunnel of a pod (fixed in 6.8.5). */
const MERGES_UDP_FROM = [6, 8, 5] as const
const JOINED: readonly FeatureName[] = ['tun-gso-tcp4', 'tun-gso-tcp6', 'tun-gso-udp', 'tun-short-tail', 'tun-checksum']

export interface DriverWishes {
  readonly driver: WorkerDriver
  readonly tunOffload: boolean
}

/** Open descriptors, and the address that packets leave from. */
export interface DriverEnds {
  readonly tun: OpenTun
  readonly receiving: readonly OpenUdpSocket[]
  readonly underlayAddress: UnderlayAddress
}

/** Finds out what the kernel takes off the driver's hands, and how many segments one send may carry. */
export async function findFeatures(
  wishes: DriverWishes & { readonly udpGso: UdpGsoMode },
  { tun, receiving, underlayAddress }: DriverEnds,
): Promise<{ readonly maxSegments: number; readonly features: readonly Feature[] }> {
  const { driver, udpGso } = wishes
  const ofDevice = [...readingFeatures(wishes, tun.features), ...joiningFeatures(wishes, release())]
  if (driver === 'offload') {
    const { maxSegments, features } = await chooseUnderlayFeatures(underlayAddress, receiving[0]!, udpGso)
    return { maxSegments, features: [...ofDevice, ...features] }
  }
  if (!receivesTrains(driver)) for (const { fd } of receiving) await receiveDatagramsOneByOne(fd)
  return { maxSegments: 1, features: [...ofDevice, ...socketFeatures(driver, receiving[0]!.receivesMerged)] }
}

/** Whether packets of each kind are joined for the TUN. `kernelRelease` as `uname -r` prints it. */
export function joiningFeatures(wishes: DriverWishes, kernelRelease: string): Feature[] {
  const reason = reasonAgainst(wishes)
  return JOINED.map((name) => {
    if (reason !== null) return unwanted(name, reason)
    if (name !== 'tun-gso-udp' || isKernelAtLeast(kernelRelease, MERGES_UDP_FROM)) return works(name, 'tried at work')
    return lost(name, `kernel ${kernelRelease} may lose joined UDP of pods with tunnels of their own`)
  })
}

/** What the device does, where it was not asked to do something also by whose wish. */
export function readingFeatures(wishes: DriverWishes, features: readonly Feature[]): Feature[] {
  const reason = reasonAgainst(wishes)
  return features.map((feature) => {
    return feature.on || feature.downgrade || reason === null ? feature : unwanted(feature.name, reason)
  })
}

/** Why the device's offloads are not wanted; `null` when they are. */
function reasonAgainst({ driver, tunOffload }: DriverWishes): string | null {
  if (driver === 'plain') return 'one packet a call'
  return tunOffload ? null : 'switched off by --tun-offload off'
}

/** Whether a driver's socket can take trains of datagrams that the kernel has merged. */
export function receivesTrains(driver: WorkerDriver): boolean {
  return driver === 'offload' || driver === 'raw'
}

/** What there is to say of the socket of a driver that never sends trains. */
export function socketFeatures(driver: Exclude<WorkerDriver, 'offload'>, receivesMerged: boolean): Feature[] {
  if (driver !== 'raw') {
    const why = driver === 'plain' ? 'one packet a call' : "Node's sockets take one datagram a call"
    return [unwanted('udp-gso', why), unwanted('udp-gro', why)]
  }
  const merged = receivesMerged ? works('udp-gro', 'granted by the kernel') : lost('udp-gro', 'refused by the kernel')
  return [unwanted('udp-gso', 'outer headers are our own, one packet a call'), merged]
}
