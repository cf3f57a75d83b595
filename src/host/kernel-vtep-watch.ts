// When the kernel dataplane looks whether device and tables are still as it left them. A look without a program, once a
// second, tells of a device that is gone, down or bare; a doorbell tells that anything about device, routes or
// neighbours has changed; and since the bell may fail, everything is looked at from time to time.
import type { Clock, Timer } from '../clock.ts'
import { type Doorbell, ringOnChanges } from './ip-monitor.ts'

/** Between two looks, milliseconds: how late a change is answered at most, and how often one that never ends is. */
const LOOK_MS = 1000
/** Longest time between two looks at everything, milliseconds. */
const LONGEST_MS = 30_000

export interface VtepWatchOptions {
  readonly clock: Clock
  readonly device: string
  /** Whether the device looks right from afar. */
  readonly isIntact: () => boolean
  /** Looks at everything and mends what is not as it should be. Never rejects. */
  readonly mend: () => Promise<void>
}

export class VtepWatch {
  readonly #options: VtepWatchOptions
  readonly #bell: Doorbell
  #timer: Timer | null = null
  #rung = false
  #mendedMs: number
  #stopped = false

  constructor(options: VtepWatchOptions) {
    this.#options = options
    this.#mendedMs = options.clock.bootMs()
    const ring = () => {
      this.#rung = true
    }
    this.#bell = ringOnChanges(ring, {
      objects: ['link', 'address', 'route', 'neigh'],
      concerns: (line) => !isElsewhere(line, options.device),
    })
    this.#arm()
  }

  stop(): void {
    this.#stopped = true
    this.#timer?.cancel()
    this.#bell.stop()
  }

  #arm(): void {
    if (this.#stopped) return
    this.#timer = this.#options.clock.after(LOOK_MS, () => void this.#look().then(() => this.#arm()))
  }

  async #look(): Promise<void> {
    const { clock, isIntact, mend } = this.#options
    if (!this.#rung && isIntact() && clock.bootMs() - this.#mendedMs < LONGEST_MS) return
    this.#rung = false
    this.#mendedMs = clock.bootMs()
    await mend()
  }
}

/** `7: veth1a@if2: <…>`, `Deleted 3: cni0    inet …`: links and addresses come and go with pods. */
const LINK = /^(?:Deleted )?\d+: ([^\s:@]+)/
/** `10.244.1.7 dev cni0 lladdr … STALE`: on a host with pods these come all the time. */
const NEIGHBOR = / dev (\S+) .*\b(lladdr|NOARP|PERMANENT|INCOMPLETE|REACHABLE|STALE|DELAY|PROBE|FAILED)\b/

/** Whether a line of `ip monitor` tells of another link, or of an address, neighbour or FDB entry of one. */
export function isElsewhere(line: string, device: string): boolean {
  const match = LINK.exec(line) ?? NEIGHBOR.exec(line)
  return match !== null && match[1] !== device
}
