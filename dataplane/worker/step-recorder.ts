// A sink that keeps a bounded number of steps, with their bytes, for whoever asked. Allocates: only while tracing.
import type { PacketMemory } from '../memory/packet-memory.ts'
import type { Step, StepSink } from '../step.ts'
import type { RecordedStep } from './messages.ts'

/** Bytes kept of a packet: all headers, and the start of the payload. */
const SNAP_BYTES = 192

export class StepRecorder implements StepSink {
  readonly #memory: PacketMemory
  readonly #nowNs: () => bigint
  #left: number
  #steps: RecordedStep[] = []

  constructor(memory: PacketMemory, steps: number, nowNs: () => bigint) {
    this.#memory = memory
    this.#left = steps
    this.#nowNs = nowNs
  }

  get isFull(): boolean {
    return this.#left <= 0
  }

  step(step: Step): void {
    if (this.#left <= 0) return
    this.#left -= 1
    this.#steps.push({ timeNs: this.#nowNs(), step, snap: this.#snap(step) })
  }

  /** What was kept since the last call. */
  take(): RecordedStep[] {
    const steps = this.#steps
    this.#steps = []
    return steps
  }

  #snap(step: Step): string {
    if (!('at' in step)) return ''
    const length = 'length' in step ? step.length : step.headerLength
    // An encapsulated frame goes on behind its header: show what it carries too.
    const shown = step.kind === 'encap' ? SNAP_BYTES : Math.min(length, SNAP_BYTES)
    return Buffer.from(this.#memory.bytes.subarray(step.at, step.at + shown)).toString('hex')
  }
}
