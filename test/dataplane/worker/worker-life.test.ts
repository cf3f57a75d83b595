// When a thread is started again, and how long its end is waited for; threads played by an event emitter, virtual time.
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { restartDelayMs, WorkerLife } from '../../../dataplane/worker/worker-life.ts'

const { Thread } = await vi.hoisted(async () => {
  const { EventEmitter } = await import('node:events')
  class Thread extends EventEmitter {
    static all: Thread[] = []
    said: unknown[] = []
    terminated = false

    constructor() {
      super()
      Thread.all.push(this)
    }

    postMessage(command: unknown): void {
      this.said.push(command)
    }

    async terminate(): Promise<void> {
      this.terminated = true
    }

    die(message: string): void {
      this.emit('error', new Error(message))
      this.emit('exit', 1)
    }
  }
  return { Thread }
})

vi.mock('node:worker_threads', () => ({ Worker: Thread }))

beforeEach(() => {
  Thread.all = []
  vi.useFakeTimers()
})
afterEach(() => vi.useRealTimers())

function born() {
  const deaths: [string, number][] = []
  let starts = 0
  const life = new WorkerLife({
    setup: () => ({}) as never,
    onStart: () => {
      starts += 1
    },
    onReport: () => undefined,
    onDeath: ({ message }, delayMs) => deaths.push([message, delayMs]),
  })
  life.start()
  return { life, deaths, starts: () => starts, last: () => Thread.all.at(-1)! }
}

const ASK = () => undefined

test('a death is told with its cause and the wait for the next thread, which is briefed like the first', () => {
  const { deaths, starts, last } = born()
  last().die('boom')
  expect(deaths).toEqual([['boom', 0]])
  expect(starts()).toBe(1)
  vi.advanceTimersByTime(0)
  expect(starts()).toBe(2)
  expect(Thread.all).toHaveLength(2)
})

test('a thread that ends without an error has died too', () => {
  const { deaths, last } = born()
  last().emit('exit', 3)
  expect(deaths).toEqual([['the thread ended with code 3', 0]])
})

test('deaths in a row wait longer and longer, at most five seconds', () => {
  const { deaths, last } = born()
  for (let n = 0; n < 9; n++) {
    last().die('boom')
    vi.advanceTimersByTime(restartDelayMs(n))
  }
  expect(deaths.map(([, delayMs]) => delayMs)).toEqual([0, 100, 200, 400, 800, 1600, 3200, 5000, 5000])
  expect(Thread.all).toHaveLength(10)
})

test('a thread that lived for ten seconds has recovered', () => {
  const { deaths, last } = born()
  last().die('boom')
  vi.advanceTimersByTime(0)
  vi.advanceTimersByTime(10_001)
  last().die('boom')
  expect(deaths.map(([, delayMs]) => delayMs)).toEqual([0, 0])
})

test('a thread that goes when asked is not replaced', async () => {
  const { life, deaths, last } = born()
  const stopped = life.stop(() => last().emit('exit', 0))
  await stopped
  await vi.advanceTimersByTimeAsync(60_000)
  expect(Thread.all).toHaveLength(1)
  expect(deaths).toEqual([])
})

test('a thread that does not go is ended after 1.2 s, and not waited for beyond 1.4 s', async () => {
  const { life, last } = born()
  let stopped = false
  const stopping = life.stop(ASK).then(() => {
    stopped = true
  })
  await vi.advanceTimersByTimeAsync(1199)
  expect(last().terminated).toBe(false)
  await vi.advanceTimersByTimeAsync(1)
  expect(last().terminated).toBe(true)
  expect(stopped).toBe(false)
  await vi.advanceTimersByTimeAsync(200)
  expect(stopped).toBe(true)
  await stopping
})

test('a stop between two threads is done at once, and no thread follows', async () => {
  const { life, last } = born()
  last().die('boom')
  await life.stop(ASK)
  await vi.advanceTimersByTimeAsync(60_000)
  expect(Thread.all).toHaveLength(1)
  life.say({ type: 'stop' }) // to nobody
})

test('a second stop is the first one', () => {
  const { life } = born()
  expect(life.stop(ASK)).toBe(life.stop(ASK))
})
