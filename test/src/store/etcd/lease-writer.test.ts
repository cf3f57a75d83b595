// Acquiring, renewing and releasing leases in etcd, against a server in memory whose answers a test can lose.
import { describe, expect, test } from 'vitest'
import { parseIpv4 } from '../../../../dataplane/wire/address.ts'
import { formatPrefix, parsePrefix } from '../../../../dataplane/wire/prefix.ts'
import { parseNetworkConfig } from '../../../../src/config/network-config.ts'
import { FlanneletteError } from '../../../../src/errors.ts'
import type { Lease, LeaseAttributes } from '../../../../src/lease/lease.ts'
import type { ChangeAnswer, EtcdCalls } from '../../../../src/store/etcd/calls.ts'
import { EtcdStore } from '../../../../src/store/etcd/etcd-store.ts'
import { RecordingLog } from '../../../support/recording-log.ts'
import { seededRandom } from '../../../support/seeded-random.ts'
import { StubEtcd } from '../../../support/stub-etcd.ts'
import { VirtualClock } from '../../../support/virtual-clock.ts'

const PREFIX = '/coreos.com/network'
const DAY_MS = 24 * 3600 * 1000
/** A lease of flannel's `alloc` or `udp` backend. */
const PLAIN: LeaseAttributes = { publicIp: parseIpv4('1.2.3.4')!, publicIpv6: null, backendType: '' }
const PLAIN_VALUE = '{"PublicIP":"1.2.3.4","PublicIPv6":null}'

function makeStore(wrap: (etcd: EtcdCalls) => EtcdCalls = (etcd) => etcd) {
  const clock = new VirtualClock()
  const etcd = new StubEtcd(clock)
  const log = new RecordingLog()
  const store = new EtcdStore('etcd', PREFIX, wrap(etcd), { clock, log, random: seededRandom(2) })
  const acquire = (previous: string | null = null, network = '10.3.0.0/16', publicIp = PLAIN.publicIp) =>
    store.acquire({
      network: parseNetworkConfig(JSON.stringify({ Network: network })),
      publicIp,
      previousSubnet: previous === null ? null : parsePrefix(previous),
      previousIpv6Subnet: null,
      attributes: () => ({ ...PLAIN, publicIp }),
    })
  const pairs = async () => (await etcd.range({ from: `${PREFIX}/subnets/`, to: `${PREFIX}/subnets0` })).pairs
  return { clock, etcd, log, store, acquire, pairs }
}

const subnetOf = (lease: Lease) => formatPrefix(lease.subnet!)

describe('acquire', () => {
  test('gives a subnet of the range, the same one again, and the remembered one only if it is in the range', async () => {
    const first = await makeStore().acquire()
    expect(subnetOf(first)).toMatch(/^10\.3\.([1-9]\d*)\.0\/24$/)
    const { acquire } = makeStore()
    expect((await acquire()).subnet).toEqual((await acquire()).subnet)
    expect(subnetOf(await makeStore().acquire('10.3.6.0/24'))).toBe('10.3.6.0/24')
    expect(subnetOf(await makeStore().acquire('10.4.6.0/24'))).toMatch(/^10\.3\./)
  })

  test('after the config changed gives a subnet of the new network and takes the old lease away', async () => {
    const { acquire, pairs } = makeStore()
    await acquire()
    expect(subnetOf(await acquire(null, '10.4.0.0/16'))).toMatch(/^10\.4\./)
    expect(await pairs()).toHaveLength(1)
  })

  test('writes key and value as flannel does, on an etcd lease of a day', async () => {
    const { acquire, pairs, etcd, clock } = makeStore()
    const lease = await acquire('10.1.5.0/24', '10.1.0.0/16')
    const [pair] = await pairs()
    expect(pair).toMatchObject({ key: '/coreos.com/network/subnets/10.1.5.0-24', value: PLAIN_VALUE })
    expect(etcd.grants.get(pair!.leaseId!)).toBe(clock.bootMs() + DAY_MS)
    expect(lease).toMatchObject({ expiresAtMs: clock.wallMs() + DAY_MS, revision: pair!.modRevision })
  })

  test('when another node is faster ten times in a row fails with an error that may pass, and leaves no etcd lease', async () => {
    const { acquire, etcd } = makeStore((stub) => ({ ...callsOf(stub), commit: async () => REFUSED }))
    await expect(acquire()).rejects.toMatchObject({ code: 'lease-conflict', retryable: true })
    expect(etcd.grants.size).toBe(0)
    expect(etcd.asked.filter((call) => call === 'range')).toHaveLength(10)
  })

  test.each(['10.3.6.0-24hi', '10.3.6.0-24&', '10.3.6.0-24&fd00::-64x', '10.3.6.0-241', '10.3.6.0-24/x'])(
    'does not stumble over a key %j, which begins like the remembered one',
    async (name) => {
      const { acquire, etcd, log } = makeStore()
      etcd.put(`${PREFIX}/subnets/${name}`, PLAIN_VALUE)
      expect(subnetOf(await acquire('10.3.6.0/24'))).not.toBe('10.3.6.0/24')
      expect(log.of('previous-subnet-unavailable')[0]?.message).toMatch(
        /10\.3\.6\.0\/24 has a lease that cannot be read/,
      )
    },
  )

  test('asks for the lifetime of the own lease only', async () => {
    const { acquire, etcd } = makeStore()
    for (let host = 1; host < 20; host++) await acquire(null, '10.3.0.0/16', PLAIN.publicIp + host)
    expect(etcd.asked).not.toContain('timeToLive')
    await acquire()
    await acquire()
    expect(etcd.asked.filter((call) => call === 'timeToLive')).toHaveLength(1)
  })

  test('of two nodes whose IPv6 halves collide the later one goes and takes another', async () => {
    const { etcd, store, log } = makeStore()
    const theirs = `${PREFIX}/subnets/10.3.7.0-24&fd00:1::-64`
    let planted = false
    const racing = new EtcdStore(
      'etcd',
      PREFIX,
      {
        ...callsOf(etcd),
        commit: async (change) => {
          if (!planted) etcd.put(theirs, '{"PublicIP":"9.9.9.9","PublicIPv6":null}', '1')
          planted = true
          return etcd.commit(change)
        },
      },
      { clock: new VirtualClock(), log, random: () => 0 },
    )
    const network = parseNetworkConfig('{"Network":"10.3.0.0/16","EnableIPv6":true,"IPv6Network":"fd00::/16"}')
    const lease = await racing.acquire({
      network,
      publicIp: PLAIN.publicIp,
      previousSubnet: parsePrefix('10.3.6.0/24'),
      previousIpv6Subnet: { address: 0xfd00_0001_0000_0000_0000_0000_0000_0000n, length: 64 },
      attributes: () => PLAIN,
    })
    expect(subnetOf(lease)).toBe('10.3.6.0/24')
    expect(lease.ipv6Subnet).not.toBe('fd00:1::/64')
    expect(await store.read(lease)).toMatchObject({ ipv6Subnet: lease.ipv6Subnet })
  })
})

const REFUSED: ChangeAnswer = { done: false, revision: 5, pairs: [] }

/** The calls alone, to replace one of them. */
function callsOf(etcd: EtcdCalls): EtcdCalls {
  return {
    range: (request) => etcd.range(request),
    commit: (change) => etcd.commit(change),
    grant: (seconds) => etcd.grant(seconds),
    revoke: (id) => etcd.revoke(id),
    timeToLive: (id) => etcd.timeToLive(id),
    watch: (...args) => etcd.watch(...args),
    close: () => etcd.close(),
  }
}

describe('renew', () => {
  test('hangs the same value on a fresh etcd lease and leaves the old one alone', async () => {
    const { acquire, store, pairs, etcd, clock } = makeStore()
    const lease = await acquire()
    await clock.advance(DAY_MS - 3600_000)
    const renewed = await store.renew(lease)
    expect(renewed).toEqual({ ...lease, revision: renewed.revision, expiresAtMs: clock.wallMs() + DAY_MS })
    expect(await pairs()).toMatchObject([{ value: PLAIN_VALUE }])
    expect(etcd.asked).not.toContain('revoke')
  })

  test('that loses gives its etcd lease back and writes nothing', async () => {
    const { acquire, store, etcd, pairs } = makeStore()
    const lease = await acquire('10.3.6.0/24')
    etcd.put(`${PREFIX}/subnets/10.3.6.0-24`, '{"PublicIP":"9.9.9.9","PublicIPv6":null}', '1')
    await expect(store.renew(lease)).rejects.toMatchObject({ code: 'lease-conflict' })
    expect(etcd.asked.at(-1)).toBe('revoke')
    expect(await pairs()).toMatchObject([{ value: '{"PublicIP":"9.9.9.9","PublicIPv6":null}' }])
  })

  test('whose answer got lost on the way is known as done by the second attempt', async () => {
    const stub: { again: boolean } = { again: false }
    const { acquire, store, pairs } = makeStore((etcd) => ({
      ...callsOf(etcd),
      // As the connection does it: the same change again, at the next endpoint.
      commit: async (change) => {
        if (stub.again) await etcd.commit(change)
        return await etcd.commit(change)
      },
    }))
    const lease = await acquire()
    stub.again = true
    const renewed = await store.renew(lease)
    const [pair] = await pairs()
    expect(renewed.revision).toBe(pair!.modRevision)
    expect(renewed.revision).toBeGreaterThan(lease.revision)
  })

  test('whose outcome is unknown does not give back the etcd lease that the key may hang on', async () => {
    const lost = new FlanneletteError('store-unreadable', 'lost', { retryable: true })
    const stub: { lose: boolean } = { lose: false }
    const { acquire, store, pairs, etcd } = makeStore((calls) => ({
      ...callsOf(calls),
      commit: async (change) => {
        const answer = await calls.commit(change)
        if (stub.lose) throw lost
        return answer
      },
    }))
    const lease = await acquire()
    stub.lose = true
    await expect(store.renew(lease)).rejects.toBe(lost)
    expect(etcd.asked).not.toContain('revoke')
    expect(await pairs()).toHaveLength(1)
  })

  test('keeps a reservation one: no etcd lease is granted', async () => {
    const { acquire, store, etcd, pairs } = makeStore()
    etcd.put(`${PREFIX}/subnets/10.3.8.0-24`, PLAIN_VALUE)
    const lease = await acquire()
    await store.renew(lease)
    expect(etcd.asked).not.toContain('grant')
    expect(await pairs()).toMatchObject([{ leaseId: null, value: PLAIN_VALUE }])
  })

  test('overwrites something that is no lease, as long as it is that', async () => {
    const { acquire, store, etcd, pairs } = makeStore()
    const lease = await acquire('10.3.6.0/24')
    etcd.put(`${PREFIX}/subnets/10.3.6.0-24`, 'rubbish')
    const renewed = await store.renew(lease)
    expect(await pairs()).toMatchObject([{ value: PLAIN_VALUE, modRevision: renewed.revision }])
    expect(etcd.grants.has((await pairs())[0]!.leaseId!)).toBe(true)
  })

  test('does not overwrite what another node has put in the place of something that is no lease', async () => {
    const theirs = '{"PublicIP":"9.9.9.9","PublicIPv6":null}'
    const key = `${PREFIX}/subnets/10.3.6.0-24`
    const stub: { left: number } = { left: 0 }
    const { acquire, store, etcd, pairs } = makeStore((calls) => ({
      ...callsOf(calls),
      commit: async (change) => {
        stub.left -= 1
        if (stub.left === 0) etcd.put(key, theirs, '1')
        return await calls.commit(change)
      },
    }))
    const lease = await acquire('10.3.6.0/24')
    etcd.put(key, 'rubbish')
    stub.left = 2
    await expect(store.renew(lease)).rejects.toMatchObject({ code: 'lease-conflict' })
    expect(await pairs()).toMatchObject([{ value: theirs }])
  })

  test('says so when something that is no lease stands beside the place', async () => {
    const { acquire, store, etcd } = makeStore()
    const lease = await acquire('10.3.6.0/24')
    etcd.delete(`${PREFIX}/subnets/10.3.6.0-24`)
    etcd.put(`${PREFIX}/subnets/10.3.6.0-24&fd00:1::-64`, 'rubbish')
    await expect(store.renew(lease)).rejects.toMatchObject({
      message: expect.stringContaining('no lease stands there'),
    })
  })
})

describe('the config', () => {
  test('that is missing is named with its key, the API and an example', async () => {
    await expect(makeStore().store.readNetworkConfig()).rejects.toMatchObject({
      code: 'config-missing',
      message: expect.stringMatching(/\/coreos\.com\/network\/config .*API v3$/),
      remedy: expect.stringContaining("ETCDCTL_API=3 etcdctl put /coreos.com/network/config '{"),
    })
  })

  test('that stands one level too high is noticed', async () => {
    const { store, etcd } = makeStore()
    etcd.put(PREFIX, '{"Network":"10.3.0.0/16"}')
    await expect(store.readNetworkConfig()).rejects.toMatchObject({
      message: expect.stringContaining('/coreos.com/network itself holds JSON'),
    })
  })

  test('is handed over as it stands', async () => {
    const { store, etcd } = makeStore()
    etcd.put(`${PREFIX}/config`, '{ "Network": "10.3.0.0/16" }\n')
    expect(await store.readNetworkConfig()).toBe('{ "Network": "10.3.0.0/16" }\n')
  })
})
