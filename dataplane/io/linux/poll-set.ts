// What a worker waits for: descriptors and what became of them, as struct pollfd (poll(2)) in packet memory.
import type { PacketMemory } from '../../memory/packet-memory.ts'
import * as libc from './libc.ts'

const POLLFD_BYTES = 8
const EVENTS = 4
const REVENTS = 6
export const POLLIN = 0x1
export const POLLOUT = 0x4
export const POLLERR = 0x8
export const POLLNVAL = 0x20

export class PollSet {
  readonly #view: DataView
  readonly #at: number
  readonly #address: number
  readonly #count: number

  constructor(memory: PacketMemory, descriptors: readonly number[], events = POLLIN) {
    this.#view = memory.view
    this.#count = descriptors.length
    this.#at = memory.reserve(descriptors.length * POLLFD_BYTES)
    this.#address = memory.addressAt(this.#at)
    descriptors.forEach((fd, index) => {
      this.setDescriptor(index, fd)
      this.#view.setUint16(this.#at + index * POLLFD_BYTES + EVENTS, events, true)
    })
  }

  /** Puts another descriptor in place `index`; -1 leaves the place out of every wait (poll(2)). */
  setDescriptor(index: number, fd: number): void {
    this.#view.setInt32(this.#at + index * POLLFD_BYTES, fd, true)
    this.#view.setUint16(this.#at + index * POLLFD_BYTES + REVENTS, 0, true)
  }

  /** Waits until something is ready, at most `timeoutMs`. Returns how many are ready, or -errno. */
  wait(timeoutMs: number): number {
    return libc.poll(this.#address, this.#count, timeoutMs)
  }

  /**
   * As {@link wait}, but the thread's event loop goes on meanwhile; `done` gets how many are ready, or -1, when it is
   * over.
   */
  waitAside(timeoutMs: number, done: (ready: number) => void): void {
    libc.pollAside(this.#address, this.#count, timeoutMs, done)
  }

  /** Events of descriptor `index` after {@link wait}: POLLIN, POLLERR, … */
  ready(index: number): number {
    return this.#view.getUint16(this.#at + index * POLLFD_BYTES + REVENTS, true)
  }
}
