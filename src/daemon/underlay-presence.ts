// Whether the underlay address is on its interface: without it nothing can be sent from it. Told when that changes, not
// at every look.
import { formatAddress } from '../../dataplane/index.ts'
import { carriesAddress } from '../host/carried-address.ts'
import type { LocalVtep } from '../host/dataplane.ts'
import type { Log } from '../log.ts'

export class UnderlayPresence {
  readonly #log: Log
  #isLost = false

  constructor(log: Log) {
    this.#log = log
  }

  /** At the last look; false before the first. */
  get isLost(): boolean {
    return this.#isLost
  }

  look({ underlayInterface, underlayAddress }: Pick<LocalVtep, 'underlayInterface' | 'underlayAddress'>): void {
    const isLost = !carriesAddress(underlayInterface, underlayAddress)
    if (isLost === this.#isLost) return
    this.#isLost = isLost
    const address = formatAddress(underlayAddress)
    if (isLost) {
      const message = `${underlayInterface} is down or has lost its address ${address}: no peer is reached`
      this.#log.warn('underlay-lost', message)
    } else {
      this.#log.info('underlay-back', `${underlayInterface} has its address ${address} again`)
    }
  }

  /** It is another address from now on. */
  forget(): void {
    this.#isLost = false
  }
}
