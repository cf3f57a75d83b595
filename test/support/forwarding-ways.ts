// The ways to forward, as rows of one table: a lab, the family of the pods' addresses, who the peer is, and what must hold
// for this way besides what must hold for all. The long suite runs all rows, the short one a diagonal; a new backend is a
// line in WAYS.
import { describe, expect, test } from 'vitest'
import type { Lab } from '../../src/lab/lab.ts'
import type { AddressFamily } from '../../src/lab/ping.ts'
import type { LabOptions } from '../../src/lab/plan.ts'
import { countersOf, eventually, expectCleanBooks, labUnderTest } from './lab-under-test.ts'
import { startTransfer } from './transfer.ts'
import { kernelRows, onTheWire, type WayCheck } from './way-checks.ts'

export interface Way {
  /** Short: it becomes part of the lab's name. */
  readonly name: string
  readonly lab: Partial<LabOptions>
  /** Which addresses of the pods are used. */
  readonly family: AddressFamily
  /** `kernel`: host2 forwards by the kernel, host1 by us; else both by us. */
  readonly peer: 'ours' | 'kernel'
  /** False where no engine of ours moves packets on either host. */
  readonly engine?: boolean
  /** What is particular, by what it says. */
  readonly checks: Readonly<Record<string, WayCheck>>
}

const VXLAN = { 'sends VXLAN frames, byte for byte as flannel’s kernel does': onTheWire('vxlan') }
const OVER_IPV6 = { 'sends VXLAN frames over IPv6, byte for byte as flannel’s kernel does': onTheWire('vxlan', 6) }
const PLAIN = { 'sends the packets of pods as they are': onTheWire('none') }
const PLAIN_IPV6 = { 'sends the packets of pods as they are': onTheWire('none', 6) }
const ROWS = { 'has neighbours, FDB and routes in the kernel as flannel has them': kernelRows() }

export const WAYS: readonly Way[] = [
  { name: 'vxlan', lab: {}, family: 4, peer: 'ours', checks: VXLAN },
  { name: 'vxlan', lab: {}, family: 4, peer: 'kernel', checks: { ...VXLAN, ...ROWS } },
  { name: 'over4', lab: { ipv6: true }, family: 6, peer: 'ours', checks: VXLAN },
  { name: 'over4', lab: { ipv6: true }, family: 6, peer: 'kernel', checks: { ...VXLAN, ...ROWS } },
  { name: 'dual', lab: { family: 'dual' }, family: 4, peer: 'kernel', checks: { ...VXLAN, ...ROWS } },
  { name: 'dual', lab: { family: 'dual' }, family: 6, peer: 'ours', checks: OVER_IPV6 },
  { name: 'dual', lab: { family: 'dual' }, family: 6, peer: 'kernel', checks: { ...OVER_IPV6, ...ROWS } },
  { name: 'ipv6', lab: { family: 'ipv6' }, family: 6, peer: 'ours', checks: OVER_IPV6 },
  { name: 'ipv6', lab: { family: 'ipv6' }, family: 6, peer: 'kernel', checks: { ...OVER_IPV6, ...ROWS } },
  { name: 'auto', lab: { auto: ['host2'] }, family: 4, peer: 'kernel', checks: { ...VXLAN, ...ROWS } },
  {
    name: 'udp',
    lab: { backend: 'udp' },
    family: 4,
    peer: 'ours',
    checks: { 'sends the packets of pods in UDP, and nothing else': onTheWire('udp') },
  },
  { name: 'hostgw', lab: { backend: 'host-gw' }, family: 4, peer: 'ours', engine: false, checks: PLAIN },
  {
    ...{ name: 'hostgw', lab: { backend: 'host-gw', family: 'dual' }, family: 6, peer: 'ours', engine: false },
    checks: PLAIN_IPV6,
  },
  { name: 'direct', lab: { directRouting: true }, family: 4, peer: 'ours', checks: PLAIN },
  { name: 'direct', lab: { directRouting: true }, family: 4, peer: 'kernel', checks: PLAIN },
  {
    ...{ name: 'direct', lab: { directRouting: true, family: 'dual' }, family: 6, peer: 'kernel' },
    checks: PLAIN_IPV6,
  },
]

const PINGS = 10
/** A tunnel that loses what is merged or unsummed limps along at a few Mbit/s. */
const LEAST_TCP = 20e6
const BOTH_WAYS = [
  ['pod1.1', 'pod2.1'],
  ['pod2.1', 'pod1.1'],
] as const

/** `seconds`: of each measurement. */
export function describeWay({ name, lab: options, family, peer, checks, engine = true }: Way, seconds: number): void {
  describe(`${name}, IPv${family} inside, ours and ${peer === 'ours' ? 'ours' : 'the kernel'}`, () => {
    const kernel = peer === 'kernel' && options.auto === undefined ? ['host2'] : []
    // Frames as they are on a wire: whole, cut and summed.
    const common = { name: `way${name}${family}${peer}`, hosts: 2, pods: 1, underlay: 'wire', kernel } as const
    const lab = labUnderTest({ ...common, ...options })

    test('answers every ping', async () => {
      const results = await lab().pingAll({ count: PINGS, family })
      expect(results.map(({ sent, received }) => [sent, received])).toEqual([
        [PINGS, PINGS],
        [PINGS, PINGS],
      ])
    })

    test.each(BOTH_WAYS)('brings 1 MiB from %s to %s unharmed, and TCP at speed', async (from, to) => {
      const transfer = await startTransfer(lab().endpoint(from), lab().endpoint(to, family), { mebibytes: 1 })
      const { sent, received } = await transfer.done
      expect(received).toBe(sent)
      expect(received).toMatch(/^1048576 [0-9a-f]{64}$/)
      const measure = async () => {
        const { bitsPerSecond } = await lab().iperf(from, to, { seconds, family })
        console.log(`${name} IPv${family} ${from} → ${to} (${peer}): TCP ${(bitsPerSecond / 1e6).toFixed(0)} Mbit/s`)
        return bitsPerSecond
      }
      // A measurement of a second in which somebody got no time is made once more.
      await expect.poll(measure, { timeout: 30_000, interval: 0 }).toBeGreaterThan(LEAST_TCP)
    })

    for (const [sentence, check] of Object.entries(checks)) test(sentence, () => check(lab(), family))

    if (engine) test('loses nothing of what our engines have read', () => expectBalancedBooks(lab()))
  })
}

async function expectBalancedBooks(lab: Lab): Promise<void> {
  const ours = lab.hosts.filter(({ name }) => lab.host(name).status?.dataplane === 'userspace')
  expect(ours).not.toEqual([])
  for (const { name } of ours) {
    await eventually(() => {
      expectCleanBooks(countersOf(lab, name))
    })
  }
}
