// A dataplane worker: one thread that moves packets and nothing else. It blocks in poll for at most a second and is
// woken through an eventfd when the main thread has said something; the dgram driver needs the thread's event loop
// instead.
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads'
import { EINTR } from '../io/errno.ts'
import { EventLoopTurns } from './event-loop-turns.ts'
import type { WorkerCommand, WorkerReport, WorkerSetup } from './messages.ts'
import { Mover } from './mover.ts'

/** Longest sleep, milliseconds. A thread inside a foreign call cannot be stopped, so the call must be short. */
const SLEEP_MS = 1000

const port = parentPort!
const setup = workerData as WorkerSetup
const report = (what: WorkerReport): void => port.postMessage(what)
const hear = (): WorkerCommand | undefined => receiveMessageOnPort(port)?.message

if (setup.driver === 'dgram') {
  new EventLoopTurns(setup, {
    hear,
    report,
    onEnd(error) {
      if (error !== null) throw error
      report({ type: 'stopped' })
    },
  })
} else {
  const mover = new Mover(setup, { hear, report, onReceivable: () => undefined, onRoom: () => undefined })
  for (let going = true; going; ) {
    const ready = mover.waits.wait(SLEEP_MS)
    if (ready < 0 && ready !== -EINTR) throw new Error(`poll failed (errno ${-ready})`)
    going = mover.turn(ready)
  }
  mover.close()
  report({ type: 'stopped' })
}
