// The overlay device of the userspace dataplane over its life: its open queues, and what is done about it when somebody
// else deletes it, sets it down or flushes it. The single steps are in overlay-device.ts; the dataplane says when to look.
import { keepOverlayDevice, type OpenTun } from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import type { LocalVtep } from '../host/dataplane.ts'
import type { Log } from '../log.ts'
import { closeAll, type DeviceWishes, dress, isDressed, openDevice } from './overlay-device.ts'

export class TendedDevice {
  readonly #wishes: DeviceWishes
  readonly #log: Log
  #queues: readonly OpenTun[] = []
  /** Set while the device is gone or does not get the network's packets. */
  #broken: 'gone' | 'bare' | null = null
  /** What keeps it from being mended; empty where that is not known. */
  #obstacle = ''
  #unseen: string | null = null

  constructor(wishes: DeviceWishes, log: Log) {
    this.#wishes = wishes
    this.#log = log
  }

  /** One for each worker; empty before `open` and after `close`. */
  get queues(): readonly OpenTun[] {
    return this.#queues
  }

  /** Makes or finds it. It goes with the process until `keep`. @throws FlanneletteError as openDevice */
  async open(deviceName: string): Promise<void> {
    this.#queues = await openDevice(deviceName, this.#wishes, this.#log)
  }

  /** Opens another one and lets go of it. @throws FlanneletteError as openDevice */
  async rehearse(deviceName: string): Promise<void> {
    await closeAll(await openDevice(deviceName, this.#wishes, this.#log))
  }

  /** Lets it outlive the process: only what works may. */
  async keep(): Promise<void> {
    await keepOverlayDevice(this.#queues[0]!.fd)
  }

  async close(): Promise<void> {
    await closeAll(this.#queues)
    this.#queues = []
  }

  /** A worker cannot read it any more. Several may say so. */
  lose(deviceName: string, errno: number): void {
    if (this.#broken === 'gone') return
    this.#log.error('device-lost', `reading ${deviceName} failed (errno ${errno})`)
    this.#broken = 'gone'
  }

  /** What keeps packets from moving, in one phrase; `null` when nothing does. */
  impairment(): string | null {
    return this.#broken === null ? null : this.#obstacle || 'the overlay device is gone or lacks its route'
  }

  /** Why the last look was none, in one phrase; `null` when it was one. */
  get unseen(): string | null {
    return this.#unseen
  }

  /**
   * Looks, and does again what a start would do to it. `onReplaced` is given the descriptors of a device that was made
   * anew; those before are closed when it returns. Resolves with whether it could be looked at. Never rejects: what fails is
   * told, and stays for the next look.
   */
  async mend(local: LocalVtep, onReplaced: (fds: readonly number[]) => void): Promise<boolean> {
    if (this.#broken === 'gone') this.#unseen = null
    else await this.#look(local)
    try {
      if (this.#broken === null) return this.#unseen === null
      if (this.#broken === 'gone') await this.#reopen(local, onReplaced)
      else await this.#redress(local)
      const message = `${local.deviceName} was changed by somebody else and is as it was again`
      this.#log.warn('device-restored', message)
    } catch (error) {
      this.#obstacle = error instanceof FlanneletteError && error.code === 'network-overlap' ? error.message : ''
      this.#log.error('device-lost', error instanceof FlanneletteError ? error.oneLine : String(error))
    }
    return this.#unseen === null
  }

  async #look(local: LocalVtep): Promise<void> {
    try {
      const found = (await isDressed(local)) ? null : 'bare'
      // Unless a worker has found it gone meanwhile.
      if (this.#broken !== 'gone') this.#broken = found
      this.#unseen = null
    } catch (error) {
      // As in a process without files left to open: nothing says that it is not as it was.
      const { message } = error as Error
      this.#unseen = message
      this.#log.warn('device-unseen', `${local.deviceName} cannot be looked at for now: ${message}`)
    }
  }

  async #reopen(local: LocalVtep, onReplaced: (fds: readonly number[]) => void): Promise<void> {
    const lost = this.#queues
    const opened = await openDevice(local.deviceName, this.#wishes, this.#log)
    try {
      await dress(local)
      await keepOverlayDevice(opened[0]!.fd)
    } catch (error) {
      await closeAll(opened)
      throw error
    }
    this.#queues = opened
    this.#broken = null // from here on a worker may find the new one gone as well
    onReplaced(opened.map(({ fd }) => fd))
    await closeAll(lost)
  }

  async #redress(local: LocalVtep): Promise<void> {
    await dress(local)
    // Unless the worker has found it gone meanwhile.
    if (this.#broken === 'bare') this.#broken = null
  }
}
