// What a dataplane says of itself that moves no packet and has no device: the ground of the backends `alloc`, which is
// this and nothing more (a lease, subnet.env, rules), and `extension`, which runs commands besides.

import type { Dataplane, LocalVtep, VtepOutline } from '../host/dataplane.ts'
import { NOTHING_PENDING, type Pending } from '../host/pending.ts'
import type { Lease } from '../lease/lease.ts'

export class IdleDataplane implements Dataplane {
  readonly kind: Dataplane['kind'] = 'none'
  readonly entropy = 'none'
  readonly driver = 'none'
  #generation = 0

  async prepare(_outline: VtepOutline): Promise<void> {}

  async start(_local: LocalVtep): Promise<void> {}

  async moveUnderlay(_local: LocalVtep): Promise<void> {}

  async changeMtu(_local: LocalVtep): Promise<void> {}

  async replacePeers(_peers: readonly Lease[], _cause: string): Promise<number> {
    this.#generation += 1
    return this.#generation
  }

  counters(): Readonly<Record<string, number>> {
    return {}
  }

  impairment(): null {
    return null
  }

  pendingSubnets(): Pending {
    return NOTHING_PENDING
  }

  async stop(_mode: 'keep' | 'remove'): Promise<void> {}
}
