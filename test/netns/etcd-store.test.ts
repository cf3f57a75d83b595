// The etcd store against a real etcd: the rules of all lease stores, and what only etcd can do to it.
import { afterAll, beforeAll, beforeEach, onTestFinished } from 'vitest'
import { leaseStoreCompliance } from '../compliance/lease-store.ts'
import { EtcdHarness } from '../support/etcd-harness.ts'
import { EtcdServer } from '../support/etcd-server.ts'

let server: EtcdServer
let harness: EtcdHarness
let serial = 0

beforeAll(async () => {
  server = await EtcdServer.start()
})
afterAll(() => server.stop())

beforeEach(async () => {
  harness = await EtcdHarness.make(server, `/test/${serial++}`)
})

leaseStoreCompliance(() => {
  onTestFinished(() => harness.close())
  return harness
})
