// A dataplane worker: one thread that moves packets and nothing else. It blocks in poll for at most a second, is woken
// through an eventfd when the main thread has said something, and never touches a store, a logger or a timer.
// Here everything is put together: memory, drivers, encapsulation, engine.
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads'
import { UdpEncapsulation } from '../encap/udp.ts'
import { VxlanEncapsulation } from '../encap/vxlan.ts'
import { Counters } from '../engine/counters.ts'
import { ENGINE_MEMORY_BYTES, Engine } from '../engine/engine.ts'
import { HeaderlessDevice } from '../engine/headerless-device.ts'
import { EAGAIN, EINTR } from '../io/errno.ts'
import * as libc from '../io/linux/libc.ts'
import { PollSet } from '../io/linux/poll-set.ts'
import { Tun } from '../io/linux/tun.ts'
import { UdpSocket } from '../io/linux/udp-socket.ts'
import { PacketMemory } from '../memory/packet-memory.ts'
import type { WorkerCommand, WorkerReport, WorkerSetup } from './messages.ts'
import { StepRecorder } from './step-recorder.ts'

/** Longest sleep, milliseconds. A thread inside a foreign call cannot be stopped, so the call must be short. */
const SLEEP_MS = 1000
/** How long a failed socket is not looked at, milliseconds. */
const SOCKET_REST_MS = 1000
/** Shortest time between two reports of offenders, milliseconds. */
const OFFENDERS_MS = 1000
const EVENTFD_BYTES = 8
const TUN = 0
const SOCKET = 1
const WAKE = 2

const port = parentPort!
const setup = workerData as WorkerSetup
const memory = new PacketMemory(ENGINE_MEMORY_BYTES, libc.addressOf)
const isPlain = setup.driver === 'plain'
const tun = new Tun(memory, setup.tunFd)
const device = isPlain ? new HeaderlessDevice(memory, tun) : tun
const socket = new UdpSocket(memory, {
  ...{ fd: setup.socketFd, senderFds: setup.senderFds, maxSegments: setup.maxSegments },
  ...(isPlain ? { messagesPerCall: 1 } : {}),
})
const waits = new PollSet(memory, [setup.tunFd, setup.socketFd, setup.wakeFd])
const wakeBytes = memory.reserve(EVENTFD_BYTES)
const engine = new Engine({
  memory,
  device,
  socket,
  encapsulation:
    setup.encapsulation === 'vxlan'
      ? new VxlanEncapsulation({ vni: setup.vni, mac: setup.mac })
      : new UdpEncapsulation(),
  counters: new Counters(setup.counters),
  settings: setup.settings,
  nowMs: () => performance.now(),
})
let recorder: StepRecorder | null = null
let socketRestsUntilMs = 0
let offendersDueMs = 0

function report(what: WorkerReport): void {
  port.postMessage(what)
}

function trace(steps: number): void {
  sendSteps()
  recorder = steps > 0 ? new StepRecorder(memory, steps, process.hrtime.bigint) : null
  engine.setSink(recorder)
}

/** Passes on what was recorded in this turn, and stops looking when enough was seen. */
function sendSteps(): void {
  if (recorder === null) return
  const steps = recorder.take()
  if (steps.length > 0) report({ type: 'steps', steps })
  if (!recorder.isFull) return
  recorder = null
  engine.setSink(null)
}

/** Passes on who was refused, if anybody was and the last report is a while ago. */
function reportOffenders(): void {
  if (engine.offenders.isEmpty) return
  const nowMs = performance.now()
  if (nowMs < offendersDueMs) return
  offendersDueMs = nowMs + OFFENDERS_MS
  report({ type: 'offenders', offenders: engine.offenders.take(Date.now()) })
}

/** Obeys everything that was said; false when it is time to go. @throws Error when the bell is broken, once all is obeyed */
function obey(): boolean {
  const rung = libc.read(setup.wakeFd, memory.addressAt(wakeBytes), EVENTFD_BYTES)
  for (;;) {
    const received = receiveMessageOnPort(port)
    if (received === undefined) break
    const command = received.message as WorkerCommand
    if (command.type === 'stop') return false
    if (command.type === 'trace') trace(command.steps)
    if (command.type === 'device') {
      tun.replaceDescriptor(command.fd)
      waits.setDescriptor(TUN, command.fd)
    }
    if (command.type === 'table') {
      engine.replaceTable(command.table)
      report({ type: 'table', generation: engine.table.generation })
    }
  }
  // A bell that is always ready and cannot be read would keep the thread from ever sleeping.
  if (rung < 0 && rung !== -EAGAIN && rung !== -EINTR) throw new Error(`the doorbell cannot be read (errno ${-rung})`)
  return true
}

/** A socket that failed is left alone for a while, so that one that fails for good costs nothing. */
function restSocket(errno: number): void {
  waits.setDescriptor(SOCKET, -1)
  socketRestsUntilMs = performance.now() + SOCKET_REST_MS
  report({ type: 'socket-failed', errno })
}

/** One turn of both directions. A TUN that is unwell is reported once and not looked at until it is replaced. */
function move(): void {
  if (socketRestsUntilMs > 0 && performance.now() >= socketRestsUntilMs) {
    socketRestsUntilMs = 0
    waits.setDescriptor(SOCKET, setup.socketFd)
  }
  if (waits.ready(SOCKET) !== 0) {
    const result = engine.inbound()
    if (result < 0) restSocket(-result)
  }
  if (waits.ready(TUN) !== 0) {
    const result = engine.outbound()
    if (result < 0) {
      waits.setDescriptor(TUN, -1)
      report({ type: 'device-failed', errno: -result })
    }
  }
}

for (let going = true; going; ) {
  const ready = waits.wait(SLEEP_MS)
  if (ready < 0 && ready !== -EINTR) throw new Error(`poll failed (errno ${-ready})`)
  // After a whole sleep too: should the bell ever fail to ring, what was said waits no longer than that.
  if (waits.ready(WAKE) !== 0 || ready === 0) going = obey()
  move()
  sendSteps()
  reportOffenders()
}
report({ type: 'stopped' })
