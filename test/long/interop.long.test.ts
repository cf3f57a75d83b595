// Ours and kernel VXLAN hosts in one network: every underlay, with and without outer checksums, every direction, both
// families inside.
import { UNDERLAY_KINDS } from '../../src/lab/plan.ts'
import { DIRECTIONS, describeInterop } from '../support/interop.ts'

for (const underlay of UNDERLAY_KINDS) {
  for (const udpChecksum of [true, false]) {
    for (const family of [4, 6] as const) {
      describeInterop({ family, underlay, udpChecksum, directions: DIRECTIONS, seconds: 2 })
    }
  }
}
