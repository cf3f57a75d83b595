// Ours and kernel VXLAN hosts in one network: every underlay, with and without outer checksums, every direction.
import { UNDERLAY_KINDS } from '../../src/lab/plan.ts'
import { DIRECTIONS, describeInterop } from '../support/interop.ts'

for (const underlay of UNDERLAY_KINDS) {
  for (const udpChecksum of [true, false]) {
    describeInterop({ underlay, udpChecksum, directions: DIRECTIONS, seconds: 2 })
  }
}
