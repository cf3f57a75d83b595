// `--dataplane auto`: the kernel's VTEP where the kernel has one and the backend is one that it knows, else our own
// engine. Chosen when the node rehearses its start, since only then the backend is known; from then on this is the one
// that was taken.
import type { Dataplane, VtepOutline } from '../host/dataplane.ts'
import type { Log } from '../log.ts'
import { ChosenDataplane } from './chosen-dataplane.ts'

export interface AutoDataplaneOptions {
  readonly kernel: () => Dataplane
  readonly userspace: () => Dataplane
  /** Why the kernel can make no VXLAN device, `null` when it can. @throws FlanneletteError when that cannot be told */
  readonly obstacle: () => Promise<string | null>
  readonly log: Log
}

export class AutoDataplane extends ChosenDataplane {
  #why = 'not chosen yet'

  constructor({ kernel, userspace, obstacle, log }: AutoDataplaneOptions) {
    super(userspace(), async (outline) => {
      const found = isKnownToKernel(outline)
        ? await obstacle()
        : `the kernel has no tunnel for the ${outline.encapsulation} backend`
      this.#why = found ?? 'this kernel has vxlan devices'
      const taken = found === null ? kernel() : null
      const kind = taken?.kind ?? 'userspace'
      log.info('dataplane-chosen', `${kind} dataplane, chosen by auto: ${this.#why}`, { dataplane: kind })
      return taken
    })
  }

  override get why(): string {
    return `auto: ${this.#why}`
  }
}

function isKnownToKernel({ encapsulation }: VtepOutline): boolean {
  return encapsulation === 'vxlan'
}
