// What every lease store must do in a network without IPv4, where a node is known by its IPv6 address and its lease has
// no IPv4 half. Part of lease-store.ts.
import { expect, test } from 'vitest'
import { parseIpv6Prefix } from '../../dataplane/wire/prefix.ts'
import { parseNetworkConfig } from '../../src/config/network-config.ts'
import { identityOf } from '../../src/lease/lease.ts'
import type { AcquireRequest, LeaseNews } from '../../src/store/lease-store.ts'
import { ipv6Lease } from '../support/peer-lease.ts'
import type { Make } from '../support/store-harness.ts'

const NETWORK = parseNetworkConfig(
  '{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00:10:244::/48","Backend":{"Type":"vxlan"}}',
)

function request(host: number, previous: string | null = null): AcquireRequest {
  const { attributes } = ipv6Lease(host)
  return {
    network: NETWORK,
    publicIp: identityOf(attributes),
    previousSubnet: null,
    previousIpv6Subnet: previous === null ? null : parseIpv6Prefix(previous),
    attributes: () => attributes,
  }
}

export function ipv6Rules(make: Make): void {
  test('nodes get subnets of their own, and the same ones again', async () => {
    const { open } = make()
    const [one, two] = [await open().acquire(request(1)), await open().acquire(request(2))]
    expect([one.subnet, two.subnet]).toEqual([null, null])
    expect(one.ipv6Subnet).toMatch(/^fd00:10:244:[0-9a-f]+::\/64$/)
    expect(two.ipv6Subnet).not.toBe(one.ipv6Subnet)
    expect(await open().acquire(request(1))).toMatchObject({ ipv6Subnet: one.ipv6Subnet })
  })

  test('the previous subnet is taken when it is free', async () => {
    const { open } = make()
    expect(await open().acquire(request(1, 'fd00:10:244:77::/64'))).toMatchObject({ ipv6Subnet: 'fd00:10:244:77::/64' })
    const other = await open().acquire(request(2, 'fd00:10:244:77::/64'))
    expect(other.ipv6Subnet).not.toBe('fd00:10:244:77::/64')
  })

  test('a lease is read back, renewed, and given back', async () => {
    const { open } = make()
    const [lease, theirs] = [await open().acquire(request(1)), await open().acquire(request(2))]
    expect(await open().read(lease)).toEqual(lease)
    const renewed = await open().renew(lease)
    expect(renewed.revision).toBeGreaterThan(lease.revision)
    await open().release(renewed)
    expect(await open().read(lease)).toBeNull()
    expect(await open().read(theirs)).toEqual(theirs)
  })

  test('one that another node wrote meanwhile is its own from then on', async () => {
    const harness = make()
    const lease = await harness.open().acquire(request(1))
    harness.put({ ...lease, attributes: ipv6Lease(2).attributes, revision: lease.revision + 1 })
    await expect(harness.open().renew(lease)).rejects.toMatchObject({ code: 'lease-conflict' })
  })

  test('a watch tells of all of them', async () => {
    const { open } = make()
    await open().acquire(request(1))
    const stop = new AbortController()
    const store = open()
    const watch = store.watch(stop.signal)[Symbol.asyncIterator]()
    const seen = async () => {
      const { value } = (await watch.next()) as { value: LeaseNews }
      return value.type === 'snapshot' ? value.leases.map(({ attributes }) => attributes.publicIpv6) : value.type
    }
    expect(await seen()).toEqual(['2001:db8::1'])
    await open().acquire(request(2))
    expect((await seen()) as string[]).toHaveLength(2)
    stop.abort()
    await watch.return?.()
  })
}
