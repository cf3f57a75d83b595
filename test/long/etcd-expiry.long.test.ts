// What only time and a real etcd show: a lease that nobody renews goes, and the watch says so.
import { expect, onTestFinished, test } from 'vitest'
import { formatPrefix } from '../../dataplane/wire/prefix.ts'
import { systemClock } from '../../src/clock.ts'
import { silentLog } from '../../src/log.ts'
import { openEtcdStore } from '../../src/store/etcd/etcd-store.ts'
import type { LeaseNews } from '../../src/store/lease-store.ts'
import { etcdOptionsFor } from '../support/etcd-harness.ts'
import { flannelValue, PREFIX } from '../support/etcd-network.ts'
import { EtcdServer } from '../support/etcd-server.ts'

test('a key on an etcd lease of 3 s is told of, and then that it is gone', async () => {
  const server = await EtcdServer.start()
  onTestFinished(() => server.stop())
  const store = openEtcdStore(etcdOptionsFor([server.url], PREFIX), {
    clock: systemClock(),
    log: silentLog,
    random: Math.random,
  })
  onTestFinished(() => store.close())
  const watch = store.watch(AbortSignal.timeout(30_000))[Symbol.asyncIterator]()
  const next = async () => {
    const { value } = (await watch.next()) as IteratorResult<LeaseNews, undefined>
    return value?.type === 'snapshot' ? value.leases.map(({ subnet }) => formatPrefix(subnet!)) : value?.type
  }
  expect(await next()).toEqual([])
  const id = /lease (\w+) granted/.exec(server.ctl('lease', 'grant', '3'))![1]!
  server.ctl('put', '--lease', id, `${PREFIX}/subnets/10.1.5.0-24`, flannelValue('1.2.3.4', '02:00:00:00:00:01'))
  const start = performance.now()
  let seen = await next()
  if (Array.isArray(seen) && seen.length === 0) seen = await next() // the stream was opened meanwhile
  expect(seen).toEqual(['10.1.5.0/24'])
  expect(await next()).toEqual([])
  expect(performance.now() - start).toBeGreaterThan(2000)
  await watch.return?.()
})
