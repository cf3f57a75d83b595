// The speed harness in small: both overlays come up, both loads run on both, and nothing is left. Its figures are no
// verdict (one short round on a busy machine); those of test/long/ are.
import { afterAll, expect, test } from 'vitest'
import { compare, removeLabs } from '../../bench/netns/compare.ts'
import { labName } from '../../bench/netns/contestants.ts'
import { existingNamespaces } from '../../src/lab/namespaces.ts'

afterAll(() => removeLabs())

test('kernel and ours are measured in turns under both loads, and the labs are removed', async () => {
  const heard: string[] = []
  const progress = (line: string) => heard.push(line)
  const comparisons = await compare({
    underlay: 'wire',
    loads: ['tcp', 'small-packets'],
    rounds: 1,
    seconds: 1,
    progress,
  })
  expect(heard.map((line) => line.replace(/ [\d.e+]+$/, ''))).toEqual([
    'wire tcp round 1: kernel',
    'wire tcp round 1: ours',
    'wire small-packets round 1: kernel',
    'wire small-packets round 1: ours',
  ])
  const [tcp, small] = comparisons
  expect(tcp?.challenge.median).toBeGreaterThan(0.1) // Gbit/s
  expect(tcp?.base.median).toBeGreaterThan(0.1)
  expect(small?.challenge.median).toBeGreaterThan(1000) // packets/s
  expect(small?.base.median).toBeGreaterThan(1000)
  expect(tcp?.challenge.cpuPerMoved).toBeGreaterThan(0)
  expect(tcp?.guard).toBe(0.6)
  expect(small?.guard).toBeNull()
  for (const end of tcp?.links ?? []) {
    expect(end).toMatchObject({ mtuBytes: 1500, features: { 'tx-checksumming': false, 'tx-udp-segmentation': false } })
  }
  expect(tcp?.links).toHaveLength(4)
  for (const one of ['kernel', 'ours'] as const) expect(await existingNamespaces(labName(one))).toEqual([])
})
