// A node whose own address, or the one that peers are told, is one that pods may have: at its start, when the underlay
// moves, and when the config in the store changes.
import { describe, expect, test } from 'vitest'
import { parseIpv4, parseIpv6 } from '../../../dataplane/wire/address.ts'
import { parseNetworkConfig } from '../../../src/config/network-config.ts'
import { tunnelBackend } from '../../../src/config/tunnel-backend.ts'
import { refusePodAddresses } from '../../../src/daemon/pod-addresses.ts'
import type { FlanneletteError } from '../../../src/errors.ts'
import { CONFIG, ETH0, makeHost, started } from '../../support/agent-host.ts'
import { following, OLD_TEXT } from '../../support/following-host.ts'

const INSIDE = parseIpv4('10.244.7.7')!
const OUTSIDE = parseIpv4('203.0.113.5')!
const INSIDE_IPV6 = parseIpv6('fd00:10:244:7::7')!
const OUTSIDE_IPV6 = parseIpv6('2001:db8::1')!

type Own = Parameters<typeof refusePodAddresses>[2]

/** What a start says of such addresses, with exit code; `null` when nothing. */
function refusal(own: Partial<Own>, backend: object, ipv6: 'EnableIPv4' | 'EnableIPv6' | '' = '') {
  const both = ipv6 === '' ? {} : { EnableIPv6: true, IPv6Network: 'fd00:10:244::/48' }
  const ipv4 = ipv6 === 'EnableIPv4' ? { EnableIPv4: false } : { Network: '10.244.0.0/16' }
  const config = parseNetworkConfig(JSON.stringify({ ...ipv4, ...both, Backend: backend }))
  const networks = { network: config.ipv4?.network ?? null, ipv6Network: config.ipv6?.network ?? null }
  try {
    refusePodAddresses(networks, tunnelBackend(config), { underlay: ETH0, ...own })
    return null
  } catch (error) {
    const { code, exitCode, oneLine } = error as FlanneletteError
    return `${code} ${exitCode} ${oneLine}`
  }
}

const VXLAN = { Type: 'vxlan' }
const DUAL_ETH0 = { ...ETH0, ipv6Address: OUTSIDE_IPV6 }

test.each<[string, Partial<Own>, object, 'EnableIPv4' | 'EnableIPv6' | '', RegExp]>([
  [
    '--public-ip',
    { publicIp: INSIDE },
    VXLAN,
    '',
    /^network-overlap 1 --public-ip 10\.244\.7\.7 lies inside the pod network 10\.244\.0\.0\/16: .*leave --public-ip out/,
  ],
  ['--public-ip with plain UDP', { publicIp: INSIDE }, { Type: 'udp' }, '', /^network-overlap 1 --public-ip/],
  [
    '--public-ipv6',
    { underlay: DUAL_ETH0, publicIpv6: INSIDE_IPV6 },
    VXLAN,
    'EnableIPv6',
    /--public-ipv6 fd00:10:244:7::7 lies inside the pod network fd00:10:244::\/48/,
  ],
  [
    'the address of the interface',
    { underlay: { address: INSIDE } },
    { Type: 'host-gw' },
    '',
    /10\.244\.0\.0\/16 covers this host's own address 10\.244\.7\.7; choose another Network/,
  ],
  [
    'the address of the interface, which --public-ip repeats',
    { underlay: { address: INSIDE }, publicIp: INSIDE },
    VXLAN,
    '',
    /covers this host's own address 10\.244\.7\.7/,
  ],
  [
    'its IPv6 address beside that of IPv4',
    { underlay: { ...ETH0, ipv6Address: INSIDE_IPV6 } },
    { Type: 'host-gw' },
    'EnableIPv6',
    /covers this host's own address fd00:10:244:7::7; choose another IPv6Network/,
  ],
  [
    'its IPv6 address alone',
    { underlay: { address: INSIDE_IPV6 } },
    VXLAN,
    'EnableIPv4',
    /covers this host's own address fd00:10:244:7::7/,
  ],
])('%s inside the pod network is refused, with what to do', (_, own, backend, ipv6, words) => {
  expect(refusal(own, backend, ipv6)).toMatch(words)
})

test.each<[string, Partial<Own>, object, 'EnableIPv4' | 'EnableIPv6' | '']>([
  ['an address beside it', { publicIp: OUTSIDE }, VXLAN, ''],
  ['what a network of pods does without a tunnel is nobody’s loop', { publicIp: INSIDE }, { Type: 'alloc' }, ''],
  ['an IPv6 address that no tunnel uses', { publicIpv6: INSIDE_IPV6 }, { ...VXLAN, IPv6OverIPv4: true }, 'EnableIPv6'],
  [
    'an IPv4 address that no tunnel uses',
    { underlay: { address: OUTSIDE_IPV6 }, publicIp: INSIDE },
    VXLAN,
    'EnableIPv4',
  ],
])('%s is not refused', (_, own, backend, ipv6) => {
  expect(refusal(own, backend, ipv6)).toBeNull()
})

describe('a node', () => {
  test('with such a --public-ip does not start, and takes no lease', async () => {
    const host = makeHost()
    const { agent, dataplane } = host.boot({ publicIp: INSIDE })
    await expect(agent.start()).rejects.toMatchObject({ code: 'network-overlap', exitCode: 1 })
    expect([host.shared.book().leases(), dataplane.local, host.env()]).toEqual([[], null, null])
  })

  test('does not move to an address of pods, says so, and moves to the next one', async () => {
    const node = await following()
    node.choose({ ...ETH0, address: INSIDE })
    node.carry(['10.244.7.7'])
    await node.clock.advance(30_000)
    expect(node.lease().attributes.publicIp).toBe(ETH0.address)
    expect(node.dataplane.local?.underlayAddress).toBe(ETH0.address)
    expect(node.said('underlay-unfollowed')[0]?.message).toContain("covers this host's own address 10.244.7.7")
    node.choose({ ...ETH0, address: OUTSIDE })
    node.carry(['203.0.113.5'])
    await node.clock.advance(30_000)
    expect(node.lease().attributes.publicIp).toBe(OUTSIDE)
  })

  const changedTo = async (host: ReturnType<typeof makeHost>, config: string) => {
    host.shared.config = config
    await host.clock.advance(300_000)
    return host.log.of('config-changed').at(-1)?.message
  }

  test('says of a changed config that it could not start with it, and why', async () => {
    const host = makeHost()
    await started(host, { publicIp: OUTSIDE })
    const said = 'the network config in the store has changed'
    expect(await changedTo(host, '{"Network":"192.0.0.0/16","Backend":{"Type":"vxlan"}}')).toMatch(
      `${said} (Network), and this node cannot start with it: the pod network 192.0.0.0/16 covers this host's own`,
    )
    expect(await changedTo(host, '{"Network":"203.0.113.0/24","SubnetLen":28,"Backend":{"Type":"vxlan"}}')).toMatch(
      'cannot start with it: --public-ip 203.0.113.5 lies inside the pod network 203.0.113.0/24',
    )
    expect(await changedTo(host, '{"Network":"10.244.0.0/30"}')).toMatch(
      /cannot start with it: network config: Network/,
    )
    expect(await changedTo(host, '{"Network":')).toMatch(/\(the text\), and this node cannot start with it: .*line 1/)
    expect(await changedTo(host, CONFIG.replace('244', '99'))).toBe(`${said} (Network): restart this node to use it`)
  })

  test('judges it by the address that the node has moved to', async () => {
    const node = await following()
    node.choose({ ...ETH0, address: OUTSIDE })
    node.carry(['203.0.113.5'])
    await node.clock.advance(30_000)
    expect(OLD_TEXT).toMatch(/^192\.0\./)
    expect(await changedTo(node, '{"Network":"192.0.0.0/16","Backend":{"Type":"vxlan"}}')).toMatch(/restart this node/)
    expect(await changedTo(node, '{"Network":"203.0.0.0/16","Backend":{"Type":"vxlan"}}')).toMatch(
      /cannot start with it/,
    )
  })
})
