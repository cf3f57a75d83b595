// All workers of a dataplane as one: worker k owns queue k of the TUN and socket k of the port. Each has the whole
// table and counters of its own, which are added up here; the sending sockets are everybody's, so that a flow's source
// port does not depend on who sends it.
import { mergeTraffic, type PeerTraffic } from '../engine/peer-activity.ts'
import type { ForwardingEntry, UnderlayAddress } from '../forwarding/remote-vtep.ts'
import type { PathFds } from '../io/linux/udp-open.ts'
import { DataplaneWorker, type DataplaneWorkerOptions } from './dataplane-worker.ts'
import type { RecordedStep } from './messages.ts'

/** What one worker owns. */
export interface WorkerQueue {
  readonly tunFd: number
  readonly socketFd: number
  readonly pathFds?: PathFds
}

export type WorkerGroupOptions = Omit<DataplaneWorkerOptions, keyof WorkerQueue> & {
  readonly queues: readonly WorkerQueue[]
}

export class WorkerGroup {
  readonly workers: readonly DataplaneWorker[]

  private constructor(workers: readonly DataplaneWorker[]) {
    this.workers = workers
  }

  /**
   * Starts a worker for each queue, all or none. They forward nothing until their first table. @throws Error as
   * makeDoorbell
   */
  static async start({ queues, ...shared }: WorkerGroupOptions): Promise<WorkerGroup> {
    const workers: DataplaneWorker[] = []
    try {
      for (const queue of queues) workers.push(await DataplaneWorker.start({ ...shared, ...queue }))
    } catch (error) {
      for (const worker of workers) await worker.stop()
      throw error
    }
    return new WorkerGroup(workers)
  }

  /** Hands over a whole new table. Resolves with its generation once all workers forward by it. */
  async replaceTable(entries: readonly ForwardingEntry[]): Promise<number> {
    const generations = await Promise.all(this.workers.map((worker) => worker.replaceTable(entries)))
    return generations[0]!
  }

  /** Records at most `steps` steps of all workers together; see DataplaneWorker.trace. */
  trace(steps: number, onSteps: ((steps: readonly RecordedStep[]) => void) | null): void {
    let left = steps
    const share = (recorded: readonly RecordedStep[]): void => {
      if (left <= 0) return // of a worker that had not heard yet that it is enough
      const taken = recorded.slice(0, left)
      left -= taken.length
      if (left === 0) this.#traceEach(0, null)
      onSteps?.(taken)
    }
    this.#traceEach(steps, share)
  }

  #traceEach(steps: number, onSteps: ((steps: readonly RecordedStep[]) => void) | null): void {
    for (const worker of this.workers) worker.trace(steps, onSteps)
  }

  /** Takes inner packets up to so many bytes. Resolves when all workers do. */
  async setMtu(mtuBytes: number): Promise<void> {
    await Promise.all(this.workers.map((worker) => worker.setMtu(mtuBytes)))
  }

  /** Goes on with a TUN that was opened anew: a descriptor for each worker. */
  replaceDevice(fds: readonly number[]): void {
    for (const [index, worker] of this.workers.entries()) worker.replaceDevice(fds[index]!)
  }

  /** Ends the pause that workers make after a standstill. */
  go(): void {
    for (const worker of this.workers) worker.go()
  }

  /** Every counter by name, all workers added up. */
  counters(): Record<string, number> {
    const total: Record<string, number> = {}
    for (const worker of this.workers) {
      for (const [name, value] of Object.entries(worker.counters.snapshot())) total[name] = (total[name] ?? 0) + value
    }
    return total
  }

  /** How often each worker was replaced after it had died. */
  restarts(): number[] {
    return this.workers.map(({ counters }) => counters.get('worker.restarts'))
  }

  /** What passed between this node and each peer, by underlay address; times by monotonicClock. */
  traffic(): Map<UnderlayAddress, PeerTraffic> {
    const total = new Map<UnderlayAddress, PeerTraffic>()
    for (const worker of this.workers) mergeTraffic(total, worker.traffic())
    return total
  }

  /** Largest inner packets that ways to peers take, by underlay address, where any worker knows a limit: the least. */
  pathLimits(): Map<UnderlayAddress, number> {
    const least = new Map<UnderlayAddress, number>()
    for (const worker of this.workers) {
      for (const [address, bytes] of worker.pathLimits()) {
        least.set(address, Math.min(bytes, least.get(address) ?? bytes))
      }
    }
    return least
  }

  /** Ends all threads; see DataplaneWorker.stop. */
  async stop(): Promise<void> {
    await Promise.all(this.workers.map((worker) => worker.stop()))
  }
}
