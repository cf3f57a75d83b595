// A device that is not read while the socket has no room: packets then wait in the device's queue, where the kernel
// keeps and counts them, and none is read only to be dropped.
import type { PacketDevice } from '../packet-device.ts'

export class GatedDevice implements PacketDevice {
  readonly #device: PacketDevice
  readonly #isFull: () => boolean

  constructor(device: PacketDevice, isFull: () => boolean) {
    this.#device = device
    this.#isFull = isFull
  }

  read(at: number, capacity: number): number {
    return this.#isFull() ? 0 : this.#device.read(at, capacity)
  }

  write(iovecs: number, count: number): number {
    return this.#device.write(iovecs, count)
  }
}
