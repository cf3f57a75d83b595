// flannel's plain UDP mode: the inner packet is the UDP payload, with nothing in front of it. No MACs, no VNI; the
// tunnel counts as a hop on both sides, which the engine sees to.
import type { DropReason } from '../drop-reason.ts'
import type { Encapsulation } from './encapsulation.ts'

export class UdpEncapsulation implements Encapsulation {
  readonly name = 'udp'
  readonly headerBytes = 0

  write(): void {}

  check(_view: DataView, _at: number, length: number): DropReason | null {
    return length === 0 ? 'truncated' : null
  }
}
