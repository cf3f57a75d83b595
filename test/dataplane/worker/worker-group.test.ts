// Workers as a group: all of them are started, or none. Threads played by an event emitter, bells scripted.
import { expect, test, vi } from 'vitest'
import { WorkerGroup, type WorkerGroupOptions } from '../../../dataplane/worker/worker-group.ts'
import { scripted } from '../../support/scripted-libc.ts'

const { Thread } = await vi.hoisted(async () => {
  const { EventEmitter } = await import('node:events')
  class Thread extends EventEmitter {
    static readonly alive = new Set<Thread>()

    constructor() {
      super()
      Thread.alive.add(this)
    }

    postMessage({ type }: { readonly type: string }): void {
      if (type !== 'stop') return
      Thread.alive.delete(this)
      this.emit('exit', 0)
    }
  }
  return { Thread }
})

vi.mock('node:worker_threads', () => ({ Worker: Thread }))
vi.mock('../../../dataplane/io/linux/libc.ts', async () => {
  const { libcModule } = await import('../../support/scripted-libc.ts')
  return libcModule
})

const EMFILE = 24

test('a group that takes over from another goes on counting its tables', async () => {
  scripted.otherwise(() => 0)
  const queues = [{ tunFd: 10, socketFd: 15 }]
  const options = { queues, settings: {}, generation: 7, onReport: () => {}, onDeath: () => {} }
  const group = await WorkerGroup.start(options as unknown as WorkerGroupOptions)
  const replaced = group.replaceTable([])
  await group.stop()
  expect(await replaced).toBe(8)
})

test('a group for which there is no bell for the last worker is not started, and nothing of it stays', async () => {
  scripted.otherwise(() => 0)
  scripted.give('eventfd', 20, 21, -EMFILE)
  const closed: number[] = []
  scripted.watch((name, [fd]) => {
    if (name === 'close') closed.push(fd!)
  })
  const queues = [0, 1, 2].map((index) => ({ tunFd: 10 + index, socketFd: 15 + index }))
  const options = { queues, settings: {}, onReport: () => {}, onDeath: () => {} } as unknown as WorkerGroupOptions
  await expect(WorkerGroup.start(options)).rejects.toThrow(`errno ${EMFILE}`)
  expect(Thread.alive.size).toBe(0)
  expect(closed).toEqual([20, 21])
})
