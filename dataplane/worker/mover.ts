// What moves packets, turn by turn, wherever it runs: engine and driver put together, obeying commands, reporting what
// is unwell. Never touches a store, a logger or a timer. A thread runs it between two sleeps (worker-main.ts), the
// dgram and raw drivers between other events of a loop (event-loop-turns.ts).
import { UdpEncapsulation } from '../encap/udp.ts'
import { VxlanEncapsulation } from '../encap/vxlan.ts'
import { Counters } from '../engine/counters.ts'
import { ENGINE_MEMORY_BYTES, Engine } from '../engine/engine.ts'
import { WideAddresses } from '../engine/outer-addresses.ts'
import { EAGAIN, EINTR } from '../io/errno.ts'
import * as libc from '../io/linux/libc.ts'
import { PollSet } from '../io/linux/poll-set.ts'
import { PacketMemory } from '../memory/packet-memory.ts'
import { type DriverEvents, type OpenDriver, openDriver } from './driver.ts'
import type { WorkerCommand, WorkerReport, WorkerSetup } from './messages.ts'
import { monotonicClock } from './monotonic-clock.ts'
import { NapWatch } from './nap-watch.ts'
import { StepRecorder } from './step-recorder.ts'

/** How long a failed socket is not looked at, milliseconds. */
const SOCKET_REST_MS = 1000
/** Shortest time between two reports of offenders, milliseconds. */
const OFFENDERS_MS = 1000
const EVENTFD_BYTES = 8
/** Turns in which a device is emptied: 256 packets each, and its queue holds some 4000. */
const EMPTYING_TURNS = 16
const TUN = 0
const SOCKET = 1
const WAKE = 2

export interface MoverContact extends DriverEvents {
  /** The next command, or `undefined` when all were heard. */
  hear(): WorkerCommand | undefined
  report(what: WorkerReport): void
}

export class Mover {
  /** What to wait for before the next {@link turn}. */
  readonly waits: PollSet
  readonly driver: OpenDriver
  readonly #setup: WorkerSetup
  readonly #contact: MoverContact
  readonly #memory = new PacketMemory(ENGINE_MEMORY_BYTES, libc.addressOf)
  readonly #engine: Engine
  readonly #wakeBytes: number
  readonly #naps = new NapWatch()
  /** -1 while it is unwell. */
  #tunFd: number
  #recorder: StepRecorder | null = null
  /** An MTU that is not in force yet. */
  #nextMtu: number | null = null
  #socketRestsUntilMs = 0
  #offendersDueMs = 0

  /** @throws Error when the driver cannot be opened */
  constructor(setup: WorkerSetup, contact: MoverContact) {
    const memory = this.#memory
    this.#setup = setup
    this.#contact = contact
    this.#tunFd = setup.tunFd
    // IPv4 addresses need nobody to look them up.
    const wide = typeof setup.underlayAddress === 'bigint' ? new WideAddresses() : null
    this.driver = openDriver({ memory, setup, events: contact, wide })
    this.waits = new PollSet(memory, [setup.tunFd, this.driver.receiveFd, setup.wakeFd])
    this.#wakeBytes = memory.reserve(EVENTFD_BYTES)
    this.#engine = new Engine({
      memory,
      device: this.driver.device,
      socket: this.driver.socket,
      encapsulation:
        setup.encapsulation === 'vxlan'
          ? new VxlanEncapsulation({ vni: setup.vni, mac: setup.mac })
          : new UdpEncapsulation(),
      counters: new Counters(setup.counters),
      settings: setup.settings,
      nowMs: monotonicClock(),
      ...(wide === null ? {} : { outer: wide }),
    })
  }

  /** Does what the last wait, of which so many came `ready`, found to be done; false when it is time to go. */
  turn(ready: number): boolean {
    this.#lookForNap()
    // After a whole sleep too: should the bell ever fail to ring, what was said waits no longer than that.
    const going = (this.waits.ready(WAKE) === 0 && ready !== 0) || this.#obey()
    if (this.#nextMtu !== null && !this.#naps.isPaused) this.#takeMtu(this.#nextMtu)
    this.#engine.reviewPaths()
    this.#move()
    this.tell()
    return going
  }

  /** One turn of the inbound direction alone, for a socket that tells by itself. */
  receive(): void {
    this.#inbound()
    this.tell()
  }

  /** Leaves the device out of the next wait while the driver is full, so that waiting is not spinning. */
  holdBack(): void {
    this.waits.setDescriptor(TUN, this.driver.isFull() || this.#naps.isPaused ? -1 : this.#tunFd)
  }

  /** Passes on what there is to tell; what became of a datagram that was under way is known only after a turn. */
  tell(): void {
    this.#sendSteps()
    this.#reportOffenders()
  }

  close(): void {
    this.driver.close()
  }

  /**
   * Obeys everything that was said; false when it is time to go. @throws Error when the bell is broken, once all is
   * obeyed
   */
  #obey(): boolean {
    const rung = libc.read(this.#setup.wakeFd, this.#memory.addressAt(this.#wakeBytes), EVENTFD_BYTES)
    for (;;) {
      const command = this.#contact.hear()
      if (command === undefined) break
      if (command.type === 'stop') return false
      if (command.type === 'trace') this.#trace(command.steps)
      if (command.type === 'mtu') this.#nextMtu = command.mtuBytes
      if (command.type === 'device') {
        this.#tunFd = command.fd
        this.driver.tun.replaceDescriptor(command.fd)
        this.#watchTun()
      }
      if (command.type === 'go') {
        this.#naps.go()
        this.#watchTun()
      }
      if (command.type === 'table') {
        this.#engine.replaceTable(command.table, command.activity)
        this.#contact.report({ type: 'table', generation: this.#engine.table.generation })
      }
    }
    // A bell that is always ready and cannot be read would keep the thread from ever sleeping.
    if (rung < 0 && rung !== -EAGAIN && rung !== -EINTR) throw new Error(`the doorbell cannot be read (errno ${-rung})`)
    return true
  }

  /** One turn of both directions. A TUN that is unwell is reported once and not looked at until it is replaced. */
  #move(): void {
    const { waits } = this
    if (this.#socketRestsUntilMs > 0 && performance.now() >= this.#socketRestsUntilMs) {
      this.#socketRestsUntilMs = 0
      waits.setDescriptor(SOCKET, this.driver.receiveFd)
    }
    if (waits.ready(SOCKET) !== 0) this.#inbound()
    if (waits.ready(TUN) !== 0 && !this.#naps.isPaused) this.#outbound()
  }

  /** Returns packets read. */
  #outbound(): number {
    const result = this.#engine.outbound()
    if (result >= 0) return result
    this.#tunFd = -1
    this.waits.setDescriptor(TUN, -1)
    this.#contact.report({ type: 'device-failed', errno: -result })
    return 0
  }

  /**
   * What the device took in while its own MTU was larger still goes out: nobody would send it again for having been
   * refused.
   */
  #takeMtu(mtuBytes: number): void {
    for (let turns = 0; turns < EMPTYING_TURNS && this.#tunFd >= 0; turns++) if (this.#outbound() === 0) break
    if (this.driver.isFull()) return // some of it is in the device still
    this.#nextMtu = null
    this.#engine.setMtu(mtuBytes)
    this.driver.socket.forgetRefusals?.()
    this.#contact.report({ type: 'mtu', mtuBytes })
  }

  /** The device is left out of waits while nothing may be taken from it. */
  #watchTun(): void {
    this.waits.setDescriptor(TUN, this.#naps.isPaused ? -1 : this.#tunFd)
  }

  #lookForNap(): void {
    const wasPaused = this.#naps.isPaused
    const standstillMs = this.#naps.look()
    if (this.#naps.isPaused !== wasPaused) this.#watchTun()
    if (standstillMs !== null) this.#contact.report({ type: 'woke', standstillMs })
  }

  #inbound(): void {
    const result = this.#engine.inbound()
    if (result < 0) this.#restSocket(-result)
  }

  /**
   * A socket that failed is left alone, or at least not spoken of, for a while: one that fails for good costs nothing.
   */
  #restSocket(errno: number): void {
    if (this.#socketRestsUntilMs > 0) return
    this.waits.setDescriptor(SOCKET, -1)
    this.#socketRestsUntilMs = performance.now() + SOCKET_REST_MS
    this.#contact.report({ type: 'socket-failed', errno })
  }

  #trace(steps: number): void {
    this.#sendSteps()
    this.#recorder = steps > 0 ? new StepRecorder(this.#memory, steps, process.hrtime.bigint) : null
    this.#engine.setSink(this.#recorder)
  }

  /** Passes on what was recorded in this turn, and stops looking when enough was seen. */
  #sendSteps(): void {
    const recorder = this.#recorder
    if (recorder === null) return
    const steps = recorder.take()
    if (steps.length > 0) this.#contact.report({ type: 'steps', steps })
    if (!recorder.isFull) return
    this.#recorder = null
    this.#engine.setSink(null)
  }

  /** Passes on who was refused, if anybody was and the last report is a while ago. */
  #reportOffenders(): void {
    const { offenders } = this.#engine
    if (offenders.isEmpty) return
    const nowMs = performance.now()
    if (nowMs < this.#offendersDueMs) return
    this.#offendersDueMs = nowMs + OFFENDERS_MS
    this.#contact.report({ type: 'offenders', offenders: offenders.take(Date.now()) })
  }
}
