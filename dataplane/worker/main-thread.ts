// A mover between the events of the main thread: slower for both, and the only place in which raw-socket works.
import { EventLoopTurns } from './event-loop-turns.ts'
import type { WorkerCommand } from './messages.ts'
import type { StartRunning } from './running.ts'

export const startOnMainThread: StartRunning = (setup, events) => {
  const said: WorkerCommand[] = []
  const gone = (error: Error | null): void => events.onEnd(error ?? new Error('it was told to stop'))
  let turns: EventLoopTurns | null = null
  try {
    turns = new EventLoopTurns(setup, {
      hear: () => said.shift(),
      report: (what) => events.onReport(what),
      onEnd: gone,
    })
  } catch (error) {
    // Told as late as by a thread: not before it is known that it was started.
    setImmediate(() => gone(error as Error))
  }
  return {
    say: (command) => void said.push(command),
    terminate: () => turns?.end(null),
  }
}
