// From nothing, or from what is remembered, to a lease: config, identity, restarts.
import { writeFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { formatIpv4, formatMac, parseIpv4 } from '../../../dataplane/wire/address.ts'
import { formatPrefix, parseIpv6Prefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { writeSubnetFile } from '../../../src/config/subnet-file.ts'
import { randomMac } from '../../../src/daemon/own-attributes.ts'
import { StateDirectory } from '../../../src/daemon/state-directory.ts'
import { FlanneletteError } from '../../../src/errors.ts'
import { vtepMacOf } from '../../../src/store/flannel-json.ts'
import { CONFIG, ETH0, makeHost, remote, started } from '../../support/agent-host.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { DUAL_CONFIG } from '../../support/store-harness.ts'

const ENV_77 = 'FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.77.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n'

describe('a start', () => {
  test('publishes the MAC that the device gets, locally administered and unicast', async () => {
    const host = makeHost()
    const { agent, dataplane } = await started(host)
    const lease = host.shared.book().leases()[0]!
    expect(vtepMacOf(lease.attributes)).toBe(dataplane.local!.mac)
    expect(formatMac(agent.local!.mac)).toMatch(/^.[26ae]:/)
    for (const draw of [0, 0.5, 0.999999]) expect(formatMac(randomMac(() => draw))).toMatch(/^.[26ae]:/)
  })

  test.each([
    ['an invalid network', '{"Network":"10.0.0.0/29"}', 'config-invalid', /Network/],
    ['text that is no JSON', '{\n"Network"', 'config-invalid', /line 2/],
    [
      'a backend that is not supported',
      '{"Network":"10.0.0.0/16","Backend":{"Type":"ipip"}}',
      'config-invalid',
      /"ipip".*take "vxlan"/,
    ],
    ['IPv6 without a network', '{"Network":"10.0.0.0/16","EnableIPv6":true}', 'config-invalid', /IPv6Network/],
    [
      'IPv6 over plain UDP',
      '{"Network":"10.0.0.0/16","EnableIPv6":true,"IPv6Network":"fd00::/48","Backend":{"Type":"udp"}}',
      'config-invalid',
      /EnableIPv6.*"udp" carries IPv4 only/,
    ],
  ])('with %s fails in one line, without a lease, a device or a file', async (_, config, code, words) => {
    const host = makeHost(config)
    const { agent, dataplane } = host.boot()
    const error = (await agent.start().catch((thrown: unknown) => thrown)) as FlanneletteError
    expect([error.code, error.exitCode]).toEqual([code, 2])
    expect(error.oneLine).toMatch(words)
    expect(error.oneLine).not.toContain('\n')
    expect([host.shared.book().leases(), dataplane.local, host.env()]).toEqual([[], null, null])
  })

  test.each([
    ['host-gw', { Type: 'host-gw' }, 1],
    ['alloc', { Type: 'alloc' }, 1],
    ['vxlan', { Type: 'vxlan' }, 0],
  ])(
    'with the backend %s says of flags of a tunnel once that they have no effect, or nothing',
    async (type, backend, times) => {
      const host = makeHost(JSON.stringify({ Network: '10.244.0.0/16', Backend: backend }))
      await started(host, { tunnelFlags: ['--outer-df'] })
      const said = host.log.of('option-without-effect').map(({ message }) => message)
      expect(said).toEqual(Array(times).fill(`--outer-df has no effect: the backend ${type} has no tunnel`))
    },
  )

  test('with a store that cannot be read and nothing kept fails with exit code 1', async () => {
    const host = makeHost()
    host.shared.setOutage('switched off')
    await expect(host.boot().agent.start()).rejects.toMatchObject({ code: 'store-unreadable', exitCode: 1 })
  })

  test('with a server that is away and nothing kept asks it every second, says so, and goes on when it comes', async () => {
    const host = makeHost()
    host.shared.setOutage('switched off')
    const { agent } = host.boot({ store: remote(host.shared.open(() => 0)) })
    const starting = agent.start()
    await host.clock.advance(9500)
    expect([agent.state, host.env()]).toEqual(['starting', null])
    expect(host.log.of('store-awaited')).toHaveLength(10)
    host.shared.setOutage(null)
    await host.clock.advance(1000)
    await starting
    expect(agent.state).toBe('ready')
  })

  test('whose server goes away between config and lease waits for it as well', async () => {
    const host = makeHost()
    const { agent } = host.boot({
      store: remote(host.shared.open(() => 0)),
      claimIdentity: async () => host.shared.setOutage('switched off'),
    })
    const starting = agent.start()
    await host.clock.advance(5000)
    expect([agent.state, host.log.of('lease-unavailable').length]).toEqual(['starting', 6])
    host.shared.setOutage(null)
    await host.clock.advance(1000)
    await starting
    expect(agent.state).toBe('ready')
  })

  test('with a server that refuses fails when nothing is kept, and forwards from the kept lease otherwise', async () => {
    const host = makeHost()
    const refused = new FlanneletteError('store-refused', 'wrong password', { remedy: 'another one' })
    const refusing = () => ({
      ...remote(host.shared.open(() => 0)),
      readNetworkConfig: () => Promise.reject(refused),
    })
    await expect(host.boot({ store: refusing() }).agent.start()).rejects.toMatchObject({ code: 'store-refused' })
    const { agent } = await started(host)
    await agent.stop('keep')
    const again = await started(host, { store: refusing() })
    expect(host.log.of('degraded-start')).toHaveLength(1)
    expect(again.dataplane.local?.subnet).toEqual(agent.local?.subnet)
  })

  test('waits for a subnet when all are taken, without a subnet.env, and takes the first that comes free', async () => {
    const host = makeHost('{"Network":"10.0.0.0/28","Backend":{"Type":"vxlan"}}')
    const others = ['10.0.0.4/30', '10.0.0.8/30', '10.0.0.12/30'].map((subnet, index) => {
      return peerLease(subnet, `192.0.2.${index + 2}`, '0a:00:00:00:00:02')
    })
    host.shared.edit(() => others)
    const { agent } = host.boot()
    const starting = agent.start()
    await host.clock.advance(10_000)
    expect([agent.state, host.env()]).toEqual(['starting', null])
    const attempts = host.log.of('lease-unavailable')
    expect(attempts[0]?.message).toMatch(/10\.0\.0\.4-10\.0\.0\.12.*3 leases/)
    expect(attempts.length).toBeLessThanOrEqual(4)
    host.shared.edit(() => others.slice(1))
    await host.clock.advance(30_000)
    await starting
    expect(formatPrefix(agent.local!.subnet!)).toBe('10.0.0.4/30')
  })
})

describe('identity', () => {
  test('the given public address is published, while the socket keeps the interface address', async () => {
    const host = makeHost()
    const publicIp = parseIpv4('203.0.113.5')!
    // No address of this host, as behind NAT: that keeps no start from its lease, nor the next one.
    for (const start of ['first', 'second']) {
      const { agent } = await started(host, { publicIp })
      expect([start, agent.local?.underlayAddress]).toEqual([start, ETH0.address])
      expect(
        host.shared
          .book()
          .leases()
          .map(({ attributes }) => attributes.publicIp),
      ).toEqual([publicIp])
      await agent.stop('keep')
    }
  })

  test('the log always says which interface and address, and how they were chosen', async () => {
    const host = makeHost()
    await started(host)
    expect(host.log.of('underlay-chosen')).toEqual([
      expect.objectContaining({
        message: expect.stringMatching(/eth0.*192\.0\.2\.1/),
        fields: { how: 'default route', publicIp: '192.0.2.1' },
      }),
    ])
  })

  test('a lease with our address is taken over with its subnet and MAC when nothing else is known', async () => {
    const host = makeHost()
    host.shared.edit(() => [peerLease('10.244.9.0/24', '192.0.2.1', '0e:00:00:00:00:77')])
    const { agent } = await started(host)
    expect([formatPrefix(agent.local!.subnet!), formatMac(agent.local!.mac)]).toEqual([
      '10.244.9.0/24',
      '0e:00:00:00:00:77',
    ])
  })

  test('the MAC of the state directory wins over that of the lease', async () => {
    const host = makeHost()
    host.shared.edit(() => [peerLease('10.244.9.0/24', '192.0.2.1', '0e:00:00:00:00:77')])
    const state = new StateDirectory(`${host.directory}/state`, host.log)
    state.prepare()
    state.writeMac(0x0a_00_00_00_00_01)
    const { agent } = await started(host)
    expect(formatMac(agent.local!.mac)).toBe('0a:00:00:00:00:01')
    expect(vtepMacOf(host.shared.book().leases()[0]!.attributes)).toBe(0x0a_00_00_00_00_01)
  })

  test('a start under another public address, or of a copied host, has a MAC of its own; the way back has the old one', async () => {
    const host = makeHost()
    const addresses = ['192.0.2.1', '192.0.2.50', '192.0.2.1'].map((text) => parseIpv4(text)!)
    const macs: (number | null)[] = []
    for (const publicIp of addresses) {
      const { agent, dataplane } = await started(host, { publicIp })
      const own = host.shared
        .book()
        .leases()
        .find(({ attributes }) => attributes.publicIp === publicIp)!
      macs.push(vtepMacOf(own.attributes))
      expect(dataplane.local!.mac).toBe(macs.at(-1))
      await agent.stop('keep')
    }
    expect(macs[1]).not.toBe(macs[0])
    expect(macs[2]).toBe(macs[0])
    const inStore = host.shared
      .book()
      .leases()
      .map(({ attributes }) => vtepMacOf(attributes))
    expect(new Set(inStore).size).toBe(2)
  })

  test('a subnet file whose subnet now belongs to another host gives us another one; theirs is untouched', async () => {
    const host = makeHost()
    const theirs = peerLease('10.244.1.0/24', '192.0.2.9', '0a:00:00:00:00:09')
    host.shared.edit(() => [theirs])
    const file = { network: parsePrefix('10.244.0.0/16')!, subnet: theirs.subnet, mtuBytes: 1450, ipMasq: false }
    writeSubnetFile(host.subnetFile, { ...file, ipv6: null })
    const { agent } = await started(host)
    expect(formatPrefix(agent.local!.subnet!)).not.toBe('10.244.1.0/24')
    expect(host.shared.book().leases()).toContainEqual(theirs)
    expect(host.log.of('previous-subnet-unavailable').map((line) => line.message)).toEqual([
      expect.stringMatching(/192\.0\.2\.9.*192\.0\.2\.1\b/),
    ])
    expect(host.env()).toContain(formatIpv4(agent.local!.subnet!.address + 1))
  })
})

describe('a restart', () => {
  test('gives the same subnet and MAC and the same bytes in subnet.env', async () => {
    const host = makeHost()
    const first = await started(host)
    const before = host.env()
    await first.agent.stop('keep')
    expect(host.env()).toBe(before)
    const second = await started(host)
    expect(host.env()).toBe(before)
    expect(second.agent.local).toEqual(first.agent.local)
  })

  test('after the lease expired gives the same subnet again when it is free', async () => {
    const host = makeHost()
    const first = await started(host)
    await first.agent.stop('keep')
    host.clock.suspend(48 * 3600_000)
    expect(host.shared.book().leases()).toEqual([])
    const second = await started(host)
    expect(second.agent.local).toEqual(first.agent.local)
  })

  test('removes a subnet.env of another network before anything else', async () => {
    const host = makeHost()
    const file = {
      network: parsePrefix('10.0.0.0/8')!,
      subnet: parsePrefix('10.9.1.0/24')!,
      ipv6: null,
      mtuBytes: 1450,
      ipMasq: false,
    }
    writeSubnetFile(host.subnetFile, file)
    const { agent, dataplane } = host.boot()
    dataplane.startFailures.push(new FlanneletteError('tun-unavailable', 'no /dev/net/tun'))
    await expect(agent.start()).rejects.toMatchObject({ code: 'tun-unavailable' })
    expect(host.env()).toBeNull()
    expect(host.log.of('subnet-file-stale')).toHaveLength(1)
  })

  test('removes a subnet.env that contradicts the kept lease even while the store is still awaited', async () => {
    const host = makeHost()
    const first = await started(host)
    await first.agent.stop('keep')
    writeFileSync(host.subnetFile, ENV_77)
    host.shared.config = null
    const { agent } = host.boot()
    const starting = agent.start().catch(() => {})
    await host.clock.advance(2000)
    expect(host.env()).toBeNull()
    await agent.stop('keep')
    await starting
  })
})

describe('a start with IPv6', () => {
  const half = (host: ReturnType<typeof makeHost>) => host.shared.book().leases()[0]?.ipv6Subnet

  test('takes a subnet of each family, with one MAC for both, and tells the dataplane and subnet.env', async () => {
    const host = makeHost(DUAL_CONFIG)
    const { agent, dataplane } = await started(host)
    const [lease] = host.shared.book().leases()
    expect(lease?.attributes.publicIpv6).toBeNull()
    expect(lease?.attributes.backendV6Data).toEqual(lease?.attributes.backendData)
    expect(dataplane.local?.ipv6Network).toEqual(parseIpv6Prefix('fd00:10:244::/48'))
    expect(formatPrefix(dataplane.local!.ipv6Subnet!)).toBe(lease?.ipv6Subnet)
    expect(host.env()).toContain('FLANNEL_IPV6_NETWORK=fd00:10:244::/48\n')
    expect(host.env()).toContain(`FLANNEL_IPV6_SUBNET=${lease?.ipv6Subnet?.replace('::/64', '::1/64')}\n`)
    expect(agent.state).toBe('ready')
    const both = `${formatPrefix(lease!.subnet!)} and ${lease?.ipv6Subnet}`
    expect(host.log.of('lease-acquired').map(({ message }) => message)).toEqual([`lease ${both} is ours`])
  })

  test('has the same half again after a restart, from the state directory though the lease is gone', async () => {
    const host = makeHost(DUAL_CONFIG)
    await (await started(host)).agent.stop('keep')
    const before = half(host)
    host.shared.edit(() => [])
    await started(host)
    expect(half(host)).toBe(before)
  })

  test('forwards by the kept half while the store is away', async () => {
    const host = makeHost(DUAL_CONFIG)
    await (await started(host)).agent.stop('keep')
    const before = host.env()
    host.shared.setOutage('switched off')
    const { agent, dataplane } = await started(host)
    expect(agent.state).toBe('degraded')
    expect(dataplane.local?.ipv6Subnet).not.toBeNull()
    expect(host.env()).toBe(before)
  })

  test('keeps the IPv4 subnet of before, and removes the subnet.env that knows no IPv6', async () => {
    const host = makeHost(CONFIG)
    const first = await started(host)
    await first.agent.stop('keep')
    host.shared.config = DUAL_CONFIG
    const second = await started(host)
    expect(second.agent.local?.subnet).toEqual(first.agent.local?.subnet)
    expect(host.log.of('subnet-file-stale')).toHaveLength(1)
    expect(host.env()).toContain('FLANNEL_IPV6_SUBNET=')
    expect(host.shared.book().leases()).toHaveLength(1)
  })

  test('is refused on an underlay whose MTU leaves IPv6 no room, before there is a lease', async () => {
    const host = makeHost(DUAL_CONFIG)
    const narrow = { selectUnderlay: async () => ({ ...ETH0, mtuBytes: 1329 }) }
    await expect(host.boot(narrow).agent.start()).rejects.toMatchObject({
      code: 'interface-unsuitable',
      message: expect.stringContaining('at least 1280'),
    })
    expect(host.shared.book().leases()).toEqual([])
    expect((await started(host, { selectUnderlay: async () => ({ ...ETH0, mtuBytes: 1330 }) })).agent.state).toBe(
      'ready',
    )
  })
})
