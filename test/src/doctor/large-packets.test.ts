// The quick look for a hole in the MTU: who is asked, what for, how long, and what is said of it.
import { describe, expect, test } from 'vitest'
import { lookAtLargePackets, PEERS_ASKED } from '../../../src/doctor/large-packets.ts'
import type { PeerView } from '../../../src/doctor/node-view.ts'
import type { LadderPlace } from '../../../src/doctor/rung.ts'
import type { EchoOptions, EchoResult } from '../../../src/host/echo.ts'
import { IPV6_PLACE, peer, withIpv6, withStatus } from '../../support/doctor-facts.ts'

const PLACE: LadderPlace = {
  ...{ underlayFamily: 'IPv4', underlayInterface: 'eth0', underlayMtuBytes: 1500 },
  ...{ overlayDevice: 'flannel.1', overlayMtuBytes: 1450 },
  ...{ overheadBytes: 50, port: 8472, outerDf: 'set', ipv6: false, ipv6Tunnel: null },
}

interface Asked {
  readonly address: string
  readonly options: EchoOptions
}

/** A network in which packets larger than `limit` vanish, or are told of; `late` series have no answer at all. */
function network(limit: number, { tells = false, late = 0 } = {}) {
  const asked: Asked[] = []
  const echo = async (address: string, options: EchoOptions): Promise<EchoResult> => {
    asked.push({ address, options })
    const { count: sent, packetBytes = 84, dontFragment = false } = options
    const tooBig = dontFragment && packetBytes > limit
    const lost = tooBig || (packetBytes > 84 && late-- > 0)
    const told = tooBig && tells ? { limitBytes: limit, by: null } : null
    return { sent, received: lost ? 0 : sent, averageMs: lost ? null : 0.2, tooBig: told, refusal: '' }
  }
  return { asked, echo }
}

const viewOf = (...peers: PeerView[]) => withStatus({ peers: peers as never }).view
const one = viewOf(peer(2, { state: 'active' }))

describe('who is asked', () => {
  const addressesOf = async (view: typeof one, place = PLACE) => {
    const { asked, echo } = network(9000)
    await lookAtLargePackets(view, place, { echo })
    return [...new Set(asked.map(({ address }) => address))]
  }

  test('those that something came from lately first, and nobody that is known not to answer', async () => {
    const states = ['idle', 'no-answer', 'sending', 'active', null] as const
    const peers = states.map((state, index) => peer(index + 2, { state }))
    expect(await addressesOf(viewOf(...peers))).toEqual(['10.244.5.0', '10.244.4.0', '10.244.6.0', '10.244.2.0'])
  })

  test('a few of many, all at the same time', async () => {
    const many = Array.from({ length: 9 }, (_, index) => peer(index + 1, { state: 'active' }))
    expect(await addressesOf(viewOf(...many))).toHaveLength(PEERS_ASKED)
  })

  test('the host itself where there is no tunnel', async () => {
    expect(await addressesOf(one, { ...PLACE, overlayDevice: '' })).toEqual(['192.0.2.2'])
  })

  test('both VTEPs of a peer with two tunnels, each by its own MTU', async () => {
    const { asked, echo } = network(9000)
    await lookAtLargePackets(withIpv6().view, { ...PLACE, ...IPV6_PLACE }, { echo })
    const large = asked.flatMap(({ address, options: { packetBytes } }) =>
      packetBytes ? [[address, packetBytes]] : [],
    )
    expect(large).toEqual([
      ['10.244.2.0', 1450],
      ['fd00:10:244:2::', 1430],
      ['10.244.3.0', 1450],
      ['fd00:10:244:3::', 1430],
    ])
  })
})

describe('what came of it', () => {
  test.each([
    ['all passes', network(1450), { largePasses: true, limitBytes: null }, 1],
    ['large ones vanish, and are looked for twice', network(1350), { largePasses: false, limitBytes: null }, 2],
    ['a limit is named', network(1350, { tells: true }), { largePasses: false, limitBytes: 1350 }, 1],
    ['answers were late the first time', network(1450, { late: 1 }), { largePasses: true, limitBytes: null }, 2],
  ])('%s', async (_, { asked, echo }, expected, looks) => {
    const [seen] = await lookAtLargePackets(one, PLACE, { echo })
    expect(seen).toMatchObject({ publicIp: '192.0.2.2', smallPasses: true, ...expected })
    expect(asked).toHaveLength(2 * looks)
  })

  test('nothing that answers costs more than two seconds', async () => {
    const { asked, echo } = network(1350)
    await lookAtLargePackets(one, PLACE, { echo })
    const longest = asked.map(({ options: { count, intervalMs = 0, waitMs = 0 } }) => (count - 1) * intervalMs + waitMs)
    expect(2 * Math.max(...longest)).toBeLessThan(2000)
  })
})
