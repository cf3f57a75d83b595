// Ours and kernel VXLAN hosts in one network: every underlay, with and without outer checksums, every direction, both
// families inside; and the other drivers over the underlay that lets most pass, which asks most of them.
import { UNDERLAY_KINDS } from '../../src/lab/plan.ts'
import { DIRECTIONS, describeInterop } from '../support/interop.ts'
import { withRawSocket } from '../support/raw-socket-here.ts'

for (const underlay of UNDERLAY_KINDS) {
  for (const udpChecksum of [true, false]) {
    for (const family of [4, 6] as const) {
      describeInterop({ family, underlay, udpChecksum, directions: DIRECTIONS, seconds: 2 })
    }
  }
}

/** With and without outer checksums. */
function describeDriver(driver: 'plain' | 'dgram' | 'raw'): void {
  for (const udpChecksum of [true, false]) {
    describeInterop({ driver, underlay: 'veth', udpChecksum, directions: DIRECTIONS, seconds: 1 })
  }
}

describeDriver('plain')
describeDriver('dgram')
withRawSocket(() => describeDriver('raw'))
