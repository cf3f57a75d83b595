// Which of a UDP socket's offloads are used, and why: what the kernel grants, what is asked for, which kernels are
// known to be at fault, and a self-test.
import { type Feature, lost, unwanted, works } from '../feature.ts'
import { isKernelAtLeast } from '../kernel-release.ts'
import type { SelfTestResult } from './gso-self-test.ts'
import type { OpenUdpSocket } from './udp-socket.ts'

/** `auto`: unless the kernel is known to be at fault or the self-test fails; `on`: whenever the kernel grants it. */
export type UdpGsoMode = 'auto' | 'on' | 'off'

/** From here on a full last segment makes corrupt packets on some drivers, until it was mended. */
const FAULTY_FROM = [7, 0, 0] as const
const MENDED_IN = [7, 1, 5] as const

export interface UdpFeatureFacts {
  readonly opened: Pick<OpenUdpSocket, 'maxSegments' | 'receivesMerged'>
  readonly mode: UdpGsoMode
  /** As `uname -r` prints it. */
  readonly kernelRelease: string
  readonly selfTest: () => SelfTestResult
}

/** Segments that a send shall carry, 1 for none, and what there is to say of both features. */
export function chooseUdpFeatures(facts: UdpFeatureFacts): {
  readonly maxSegments: number
  readonly features: readonly Feature[]
} {
  const segments = segmentedSends(facts)
  const merged = facts.opened.receivesMerged
    ? works('udp-gro', 'granted by the kernel')
    : lost('udp-gro', `not granted, or not to be trusted, on kernel ${facts.kernelRelease}`)
  return { maxSegments: segments.on ? facts.opened.maxSegments : 1, features: [segments, merged] }
}

function segmentedSends({ opened, mode, kernelRelease, selfTest }: UdpFeatureFacts): Feature {
  if (mode === 'off') return unwanted('udp-gso', 'switched off by --udp-gso off')
  if (opened.maxSegments === 1) return lost('udp-gso', 'not granted by the kernel')
  const why = `${opened.maxSegments} segments a send`
  if (mode === 'on') return works('udp-gso', `${why}, by --udp-gso on`)
  if (isKernelAtLeast(kernelRelease, FAULTY_FROM) && !isKernelAtLeast(kernelRelease, MENDED_IN)) {
    return lost('udp-gso', `kernel ${kernelRelease} is known to damage segmented sends; --udp-gso on overrules this`)
  }
  const result = selfTest()
  if (result === 'refused') return lost('udp-gso', 'the self-test was refused')
  if (result === 'damaged') return lost('udp-gso', 'the self-test gave other datagrams than were sent')
  return works('udp-gso', result === 'passed' ? `${why}, self-test passed` : `${why}, self-test without an answer`)
}
