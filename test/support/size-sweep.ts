// Pings of every size between pods whose own MTU is larger than the tunnel's: each one is answered, or the pod is told
// what would have fitted. For the short suite around the edge, for the long one from the smallest size on.
import { describe, expect, test } from 'vitest'
import type { Lab } from '../../src/lab/lab.ts'
import type { AddressFamily } from '../../src/lab/ping.ts'
import { labUnderTest } from './lab-under-test.ts'
import { ip } from './own-namespace.ts'

const IP_AND_ICMP_BYTES = { 4: 28, 6: 48 }
const OVERLAY_MTU = 1450
const POD_MTU = 1500
/** Pings at the same time. */
const PARALLEL = 8

export type Fate = 'delivered' | 'told' | 'vanished'

/** `sizes` are those of whole inner IPv4 packets. */
export function describeSizes(sizes: readonly number[]): void {
  describe(`${sizes.length} sizes around an MTU of ${OVERLAY_MTU}`, () => {
    const lab = labUnderTest({ name: 'sizes', pods: 1, kernel: ['host2'], underlay: 'wire' })

    test.each([
      ['pod1.1', 'pod3.1'],
      ['pod1.1', 'pod2.1'],
      ['pod2.1', 'pod3.1'],
    ])('from %s to %s: delivered, or the pod is told', async (from, to) => {
      letPodsSendMore(lab())
      const expected = sizes.map((size) => [size, size <= OVERLAY_MTU ? 'delivered' : 'told'])
      expect(await sweep(lab(), from, to, sizes, 'do')).toEqual(expected)
    })

    test.each([
      ['pod1.1', 'pod3.1'],
      ['pod1.1', 'pod2.1'],
      ['pod2.1', 'pod3.1'],
    ])('from %s to %s without DF: delivered, in fragments if need be', async (from, to) => {
      letPodsSendMore(lab())
      expect(await sweep(lab(), from, to, sizes, 'dont')).toEqual(sizes.map((size) => [size, 'delivered']))
    })
  })
}

/** Larger MTUs for the pods and their bridges than the tunnel has. */
export function letPodsSendMore(lab: Lab): void {
  for (const pod of lab.pods) {
    ip('-n', pod.namespace, 'link', 'set', 'eth0', 'mtu', String(POD_MTU))
    for (const device of [pod.name, 'cni0']) {
      ip('-n', lab.namespace(pod.host), 'link', 'set', device, 'mtu', String(POD_MTU))
    }
  }
}

/** What becomes of one ping of each size; `sizes` are those of whole inner packets, `limit` is what pods shall be told. */
export async function sweep(
  lab: Lab,
  from: string,
  to: string,
  sizes: readonly number[],
  dontFragment: 'do' | 'dont',
  family: AddressFamily = 4,
  limit = OVERLAY_MTU,
): Promise<(readonly [number, Fate])[]> {
  const fates: (readonly [number, Fate])[] = []
  let next = 0
  const worker = async () => {
    for (let index = next++; index < sizes.length; index = next++) {
      const size = sizes[index]!
      const words = [
        'ping',
        '-n',
        '-c',
        '1',
        '-W',
        '10',
        '-M',
        dontFragment,
        '-s',
        String(size - IP_AND_ICMP_BYTES[family]),
      ]
      const { stdout, stderr } = await lab.exec(from, [...words, lab.endpoint(to, family).address])
      fates[index] = [size, fateOf(stdout + stderr, limit)]
    }
  }
  await Promise.all(Array.from({ length: PARALLEL }, worker))
  return fates
}

function fateOf(said: string, limit: number): Fate {
  if (/\b1 received\b/.test(said)) return 'delivered'
  // By the host, or by the pod's own kernel, which remembers what it was told.
  const told = `(Frag needed and DF set \\(mtu = |Packet too big: mtu=|message too long, mtu[=:] ?)${limit}\\b`
  return new RegExp(told).test(said) ? 'told' : 'vanished'
}
