// The memory store keeps the rules of all lease stores.
import { formatPrefix } from '../../../dataplane/wire/prefix.ts'
import { MemoryLeases } from '../../../src/store/memory.ts'
import { leaseStoreCompliance } from '../../compliance/lease-store.ts'
import { seededRandom } from '../../support/seeded-random.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

leaseStoreCompliance(() => {
  const clock = new VirtualClock()
  const shared = new MemoryLeases(clock, null)
  const random = seededRandom(1)
  return {
    clock,
    open: () => shared.open(random),
    setConfig: (text) => {
      shared.config = text
    },
    put: (lease) => {
      const revision = shared.book().revision + 1
      shared.edit((leases) => [...leases.filter((one) => one.subnet !== lease.subnet), { ...lease, revision }])
    },
    remove: (subnet) => shared.edit((leases) => leases.filter((one) => formatPrefix(one.subnet!) !== subnet)),
    setOutage: (away) => shared.setOutage(away ? 'switched off' : null),
  }
})
