// The network config of a start: what is waited for, what is bridged by the kept one, and what is said meanwhile.
import { describe, expect, test } from 'vitest'
import { EtcdStore } from '../../../src/store/etcd/etcd-store.ts'
import { MeteredStore } from '../../../src/store/metered-store.ts'
import { CONFIG, makeHost, remote, started } from '../../support/agent-host.ts'
import { StubEtcd } from '../../support/stub-etcd.ts'

describe('a start', () => {
  test('waits for a config that is not there yet, ever less often, and goes on when it comes', async () => {
    const host = makeHost(null)
    const { agent } = host.boot()
    const starting = agent.start()
    await host.clock.advance(130_000)
    // At 0, 1, 3, 7, 15, 31, 61, 91 and 121 s.
    expect(host.log.of('config-missing')).toHaveLength(9)
    expect(host.env()).toBeNull()
    host.shared.config = CONFIG
    await host.clock.advance(1000)
    await starting
    expect(agent.state).toBe('ready')
  })

  test('is not hurried by a config that comes and goes', async () => {
    const host = makeHost(null)
    const store = new MeteredStore(
      host.shared.open(() => 0),
      host.clock,
    )
    const { agent } = host.boot({ store })
    const starting = agent.start()
    await host.clock.advance(20_000)
    const looks = () => store.operations.find(({ operation }) => operation === 'config')!
    const before = looks().failed
    for (let time = 0; time < 100; time++) {
      host.shared.config = CONFIG
      await host.clock.advance(10)
      host.shared.config = null
      await host.clock.advance(90)
    }
    expect(looks().failed - before).toBeLessThanOrEqual(20)
    host.shared.config = CONFIG
    await host.clock.advance(1000)
    await starting
  })

  test('is over while it waits for a config, at once', async () => {
    const host = makeHost(null)
    const { agent } = host.boot()
    const starting = agent.start()
    await host.clock.advance(20_000)
    await Promise.all([expect(starting).rejects.toMatchObject({ code: 'config-missing' }), agent.stop('keep')])
    expect(host.clock.timers).toBe(0)
  })

  test('is over at once also when the store has fallen silent meanwhile', async () => {
    const host = makeHost(null)
    const store = remote(host.shared.open(() => 0))
    let isSilent = false
    const readNetworkConfig = () => (isSilent ? new Promise<string>(() => {}) : store.readNetworkConfig())
    const { agent } = host.boot({ store: { ...store, readNetworkConfig } })
    const starting = agent.start()
    await host.clock.advance(20_000)
    isSilent = true
    await Promise.all([expect(starting).rejects.toMatchObject({ code: 'config-missing' }), agent.stop('keep')])
    expect(host.clock.timers).toBe(0)
  })

  test('on etcd goes on within a second of the config, though it looks by itself every 30 s only', async () => {
    const host = makeHost(null)
    const etcd = new StubEtcd(host.clock)
    const store = new EtcdStore('etcd', '/net', etcd, { clock: host.clock, log: host.log, random: () => 0 })
    const { agent } = host.boot({ store })
    const starting = agent.start()
    await host.clock.advance(40_000)
    expect(host.log.of('config-missing')).toHaveLength(6)
    etcd.put('/net/config', CONFIG)
    await host.clock.advance(1000)
    await starting
    expect(agent.state).toBe('ready')
  })

  test.each([true, false])(
    'without a kept lease ends at a config that cannot be used (remote store: %s)',
    async (far) => {
      const host = makeHost('{"Network":"10.0.0.0/29"}')
      const store = host.shared.open(() => 0)
      const { agent } = host.boot({ store: far ? remote(store) : store })
      await expect(agent.start()).rejects.toMatchObject({
        code: 'config-invalid',
        message: expect.stringContaining('Network'),
      })
      expect([host.env(), host.shared.book().leases()]).toEqual([null, []])
    },
  )

  test.each([
    ['text that is no JSON', '{"Network":'],
    ['a backend that is not supported', '{"Network":"10.244.0.0/16","Backend":{"Type":"wireguard"}}'],
  ])('from a kept lease forwards by the kept config when the server holds %s', async (_, config) => {
    const host = makeHost()
    const { agent } = await started(host)
    await agent.stop('keep')
    host.shared.config = config
    const again = await started(host, { store: remote(host.shared.open(() => 0)) })
    expect(again.dataplane.local?.subnet).toEqual(agent.local?.subnet)
    expect(host.log.of('degraded-start').map(({ message }) => message)).toEqual([
      expect.stringMatching(
        /^the config in the store cannot be used \(network config: .* from the kept lease 10\.244\./,
      ),
    ])
    await host.clock.advance(300_000)
    expect(host.log.of('config-changed')).toHaveLength(1)
  })

  test('tells of keys in the config that nobody reads', async () => {
    const host = makeHost('{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","Ports":4789,"Learning":true}}')
    await started(host)
    expect(host.log.of('config-notice').map(({ message }) => message)).toEqual([
      'Backend.Ports is a key that nobody reads: Port is meant?',
      expect.stringContaining('Backend.Learning has an effect with the kernel dataplane only'),
    ])
  })

  test('without a word on the backend takes plain UDP, as flannel does, and says that nobody chose it', async () => {
    const host = makeHost('{"Network":"10.244.0.0/16"}')
    const { dataplane } = await started(host)
    expect(dataplane.local).toMatchObject({ encapsulation: 'udp', port: 8285 })
    expect(host.log.of('config-notice').map(({ message }) => message)).toEqual([expect.stringContaining('"udp"')])
  })

  test('does not say of a store that it answers before it has', async () => {
    const host = makeHost()
    host.shared.setOutage('switched off')
    const { agent } = host.boot({ store: remote(host.shared.open(() => 0)) })
    expect(agent.store).toMatchObject({ reachable: false, why: 'not asked yet' })
    const starting = agent.start()
    await host.clock.advance(2500)
    expect(agent.store).toMatchObject({ reachable: false, why: expect.stringContaining('switched off') })
    host.shared.setOutage(null)
    await host.clock.advance(1000)
    await starting
    expect(agent.store).toMatchObject({ reachable: true, why: '' })
  })
})
