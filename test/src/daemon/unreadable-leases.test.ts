// Entries of the store that hold no lease, from etcd and from a directory, as a status tells them.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { statusOf } from '../../../src/daemon/status-file.ts'
import { EXAMPLES, unreadableInWords, unreadableLeases } from '../../../src/daemon/unreadable-leases.ts'
import { EtcdStore } from '../../../src/store/etcd/etcd-store.ts'
import { FileStore } from '../../../src/store/file.ts'
import { formatLeaseValue } from '../../../src/store/flannel-json.ts'
import type { LeaseStore } from '../../../src/store/lease-store.ts'
import { CONFIG, type Host, makeHost } from '../../support/agent-host.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { StubEtcd } from '../../support/stub-etcd.ts'

const VALUE = formatLeaseValue(peerLease('10.244.2.0/24', '192.0.2.2', '0a:00:00:00:00:02').attributes)

/** A node of that store that forwards, and what its status says of entries that hold no lease. */
async function following(host: Host, store: LeaseStore) {
  const { agent, dataplane } = host.boot({ store })
  const starting = agent.start()
  await host.clock.advance(1000)
  await starting
  return async () => {
    await host.clock.advance(2000)
    return statusOf(agent, dataplane, host.clock).unreadableLeases
  }
}

describe('in etcd', () => {
  test('they are told by key with the reason, one that was read before as well, until they are mended or gone', async () => {
    const host = makeHost()
    const etcd = new StubEtcd(host.clock)
    etcd.put('/net/config', CONFIG)
    etcd.put('/net/subnets/10.244.2.0-24', VALUE)
    const { clock, log } = host
    const told = await following(host, new EtcdStore('etcd', '/net', etcd, { clock, log, random: () => 0 }))
    expect(await told()).toEqual({ count: 0, examples: [] })
    etcd.put('/net/subnets/10.244.2.0-24', '{"PublicIP":')
    etcd.put('/net/subnets/backup\x1b[2J', VALUE)
    expect(await told()).toEqual({
      count: 2,
      examples: [
        { key: '/net/subnets/10.244.2.0-24', why: expect.stringMatching(/^line 1, column \d+: /) },
        { key: '/net/subnets/backup\\x1b[2J', why: 'its name is no lease key such as 10.244.1.0-24' },
      ],
    })
    etcd.put('/net/subnets/10.244.2.0-24', VALUE)
    etcd.delete('/net/subnets/backup\x1b[2J')
    expect(await told()).toEqual({ count: 0, examples: [] })
  })
})

describe('in a directory', () => {
  test('they are told by path with the reason, until they are mended or gone', async () => {
    const host = makeHost()
    const subnets = `${host.directory}/store/subnets`
    mkdirSync(subnets, { recursive: true })
    writeFileSync(`${host.directory}/store/config`, CONFIG)
    writeFileSync(`${subnets}/10.244.2.0-24`, '{"Publ')
    mkdirSync(`${subnets}/lost+found`)
    const { clock, log } = host
    const told = await following(host, new FileStore(`${host.directory}/store`, { clock, log, random: () => 0 }))
    const found = await told()
    expect(found?.count).toBe(2)
    expect(found?.examples).toEqual(
      expect.arrayContaining([
        { key: `${subnets}/10.244.2.0-24`, why: expect.stringMatching(/^line 1, column \d+: /) },
        { key: `${subnets}/lost+found`, why: 'it is not a regular file' },
      ]),
    )
    writeFileSync(`${subnets}/10.244.2.0-24`, `${VALUE}\n`)
    rmSync(`${subnets}/lost+found`, { recursive: true })
    expect(await told()).toEqual({ count: 0, examples: [] })
  })
})

describe('in words', () => {
  const entry = (name: string, why = 'it is no lease') => ({ key: null, name, why })
  const wordsOf = (...names: string[]) => unreadableInWords(unreadableLeases(names.map((name) => entry(name))))

  test('none is nothing, one is named, of more one is', () => {
    expect(wordsOf()).toBeNull()
    expect(wordsOf('/net/subnets/x')).toBe('the lease /net/subnets/x in the store cannot be read: it is no lease')
    expect(wordsOf('/a', '/b')).toBe('2 leases in the store cannot be read, such as /a: it is no lease')
  })

  test('a thousand with long names and words take no more room than a few, and nothing that a terminal obeys', () => {
    const long = '\x1b]0;x\x07\u202e'.repeat(1000)
    const told = unreadableLeases(Array.from({ length: 1000 }, () => entry(long, long)))
    expect([told.count, told.examples.length]).toEqual([1000, EXAMPLES])
    const words = unreadableInWords(told)!
    expect(words).toMatch(/^1000 leases in the store cannot be read, such as \\x1b\]0;x\\x07\\u202e.*…: \\x1b.*…$/)
    expect(words.length).toBeLessThan(2000)
    expect(JSON.stringify(told).length).toBeLessThan(10_000)
  })
})
