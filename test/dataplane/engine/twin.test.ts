// The engine against its slow twin: mutated packets of both families, both ways, in both encapsulations. The long form
// is test/long/twin-*.long.test.ts.
import { describe, expect, test } from 'vitest'
import { feedTwins } from '../../support/twin-load.ts'

const SEED = Number(process.env.FLANNELETTE_SEED ?? 30)
/** Each way, for each encapsulation: 100,000 in all. */
const FRAMES = 25_000

/** What has to be among the ends, or the load is not what it should be. */
const ENDS = {
  outbound: ['passed', 'not-ip', 'vnet-inconsistent', 'no-route', 'too-big', 'link-local-or-multicast', 'truncated'],
  inbound: [
    'passed',
    'inner-destination-foreign',
    'inner-source-spoofed',
    'unknown-peer',
    'ecn-illegal',
    'bad-checksum',
  ],
} as const
const ONLY = {
  vxlan: {
    outbound: ['bad-header-length', 'headers-too-long'],
    inbound: [
      'vxlan-short',
      'vxlan-no-vni',
      'vni-unknown',
      'vxlan-reserved-bits',
      'inner-destination-mac',
      'inner-source-mac',
    ],
  },
  udp: { outbound: ['ttl-expired'], inbound: ['ttl-expired', 'truncated', 'not-ip'] },
} as const

describe.each(['vxlan', 'udp'] as const)('%s', (encapsulation) => {
  test(`engine and twin agree on every packet, drop and count (seed ${SEED})`, () => {
    const twin = feedTwins(encapsulation, SEED, FRAMES)
    for (const direction of ['outbound', 'inbound'] as const) {
      for (const end of [...ENDS[direction], ...ONLY[encapsulation][direction]]) {
        expect(twin.seen(direction, end), `${direction} ${end}`).toBeGreaterThan(0)
      }
    }
    expect(twin.pair.a.counters.get('outbound.super-packets')).toBeGreaterThan(FRAMES / 100)
    // Where each frame loses a hop, each is looked at.
    if (encapsulation === 'vxlan') expect(twin.alike).toBeGreaterThan(FRAMES / 10)
    expect(twin.pair.b.counters.get('inbound.super-packets')).toBeGreaterThan(FRAMES / 100)
  }, 60_000)
})
