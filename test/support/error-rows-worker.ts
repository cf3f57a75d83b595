// Errors that a worker meets in its sleep: of poll, of its doorbell, and of descriptors that poll says are unwell. The
// worker's own loop runs on this thread, with its calls scripted and its port played.
import { expect, vi } from 'vitest'
import { Counters } from '../../dataplane/engine/counters.ts'
import { EAGAIN, EBADFD, EINTR, EINVAL, EIO } from '../../dataplane/io/errno.ts'
import type { WorkerReport, WorkerSetup } from '../../dataplane/worker/messages.ts'
import { type ErrorRow, rowsOf } from './error-row.ts'
import { scripted } from './scripted-libc.ts'

const [EBADF, ENOMEM] = [9, 12]
const [TUN, SOCKET, WAKE] = [0, 1, 2]
const [POLLIN, POLLERR, POLLHUP, POLLNVAL] = [0x1, 0x8, 0x10, 0x20]
const [POLLFD_BYTES, REVENTS] = [8, 6]
/** The places of a worker's poll; it also polls for room, with one. */
const PLACES = 3
const EVENTFD_BYTES = 8
/** Most turns of a test: a worker that would go on is stopped then. */
const TURNS = 20

/** What one sleep ends with: what poll gives, and for which place it has which events. */
interface Waking {
  readonly result?: number
  readonly events?: readonly [place: number, events: number]
}

interface Life {
  readonly reports: WorkerReport[]
  /** Descriptors that were polled, sleep by sleep. */
  readonly polled: number[][]
  readonly error: Error | null
}

/**
 * Lets a worker live through these sleeps; after them it is told to stop, the bell rung or not. `answer` gives what
 * other calls give.
 */
async function live(
  wakings: readonly Waking[],
  answer: (name: string, args: readonly number[]) => number,
  stopRings = true,
): Promise<Life> {
  const reports: WorkerReport[] = []
  const polled: number[][] = []
  const commands: object[] = []
  const [tunFd, socketFd, wakeFd] = [3, 4, 5]
  const setup = {
    ...{ driver: 'offload', tunFd, socketFd, senderFds: [], wakeFd, maxSegments: 63, encapsulation: 'udp' },
    ...{ vni: 0, mac: 0, counters: new Counters().buffer },
    settings: { overlayAddress: 1, subnet: { address: 0, length: 24 }, mtuBytes: 1472, sourceCheck: 'off' },
  } as unknown as WorkerSetup
  vi.doMock('node:worker_threads', () => ({
    parentPort: { postMessage: (report: WorkerReport) => reports.push(report) },
    workerData: setup,
    receiveMessageOnPort: () => {
      const message = commands.shift()
      return message && { message }
    },
  }))
  scripted.otherwise((name, args) => {
    if (name !== 'poll' || args[1] !== PLACES) return answer(name, args as number[])
    const view = new DataView(scripted.bytes.buffer)
    const at = args[0] as number
    polled.push([TUN, SOCKET, WAKE].map((place) => view.getInt32(at + place * POLLFD_BYTES, true)))
    const waking = wakings[polled.length - 1]
    if (waking === undefined) commands.push({ type: 'stop' })
    if (polled.length > TURNS) throw new Error('the worker does not obey')
    const { result = 1, events = [WAKE, POLLIN] } = waking ?? (stopRings ? {} : { result: 0, events: [WAKE, 0] })
    for (const place of [TUN, SOCKET, WAKE]) view.setUint16(at + place * POLLFD_BYTES + REVENTS, 0, true)
    if (result >= 0) view.setUint16(at + events[0] * POLLFD_BYTES + REVENTS, events[1], true)
    return result
  })
  vi.resetModules()
  const error = await import('../../dataplane/worker/worker-main.ts').then(
    () => null,
    (thrown: Error) => thrown,
  )
  vi.doUnmock('node:worker_threads')
  return { reports, polled, error }
}

const quiet = (name: string, [, , bytes]: readonly number[]): number =>
  name === 'read' && bytes === EVENTFD_BYTES ? EVENTFD_BYTES : -EAGAIN
const instead =
  (call: string, errno: number) =>
  (name: string, args: readonly number[]): number =>
    name === call && args[2] !== EVENTFD_BYTES ? -errno : quiet(name, args)
const bell =
  (errno: number) =>
  (name: string, args: readonly number[]): number =>
    name === 'read' && args[2] === EVENTFD_BYTES ? -errno : quiet(name, args)

const kindsOf = ({ reports }: Life) => reports.map(({ type }) => type)

export const WORKER_ROWS: readonly ErrorRow[] = [
  ...rowsOf('poll', "a worker's sleep", { EINTR }, 'sleeps again', async (errno) => {
    const life = await live([{ result: -errno }, { result: -errno }], quiet)
    expect(life).toMatchObject({ error: null })
    expect(kindsOf(life)).toEqual(['stopped'])
  }),
  ...rowsOf(
    'poll',
    "a worker's sleep",
    { ENOMEM, EINVAL },
    'the worker ends, and another one takes over',
    async (errno) => {
      const { error } = await live([{ result: -errno }], quiet)
      expect(error?.message).toContain(`errno ${errno}`)
    },
  ),
  ...rowsOf(
    'poll',
    'the TUN',
    { POLLERR, POLLHUP, POLLNVAL },
    'a read tells: device lost, told once',
    async (events) => {
      const life = await live([{ events: [TUN, events] }, {}, {}], instead('read', EBADFD))
      expect(life.reports[0]).toEqual({ type: 'device-failed', errno: EBADFD })
      expect(kindsOf(life)).toEqual(['device-failed', 'stopped'])
      expect(life.polled.slice(1).map((fds) => fds[TUN])).toEqual([-1, -1, -1])
    },
  ),
  ...rowsOf(
    'read',
    'the TUN of a worker',
    { EIO, EBADF },
    'device lost, left alone until it is replaced',
    async (errno) => {
      const life = await live([{ events: [TUN, POLLIN] }, {}], instead('read', errno))
      expect(life.reports[0]).toEqual({ type: 'device-failed', errno })
      expect(life.polled.at(-1)?.[TUN]).toBe(-1)
    },
  ),
  ...rowsOf(
    'poll',
    'the socket',
    { POLLERR, POLLHUP, POLLNVAL },
    'a receive tells: nothing is wrong',
    async (events) => {
      const life = await live([{ events: [SOCKET, events] }, {}], quiet)
      expect(kindsOf(life)).toEqual(['stopped'])
      expect(life.polled.at(-1)?.[SOCKET]).toBe(4)
    },
  ),
  ...rowsOf(
    'recvmmsg',
    'the socket of a worker',
    { EBADF, ENOMEM },
    'rests for a second, told each time',
    async (errno) => {
      const life = await live([{ events: [SOCKET, POLLIN] }, {}], instead('recvmmsg', errno))
      expect(life.reports[0]).toEqual({ type: 'socket-failed', errno })
      expect(life.polled.at(-1)?.[SOCKET]).toBe(-1)
    },
  ),
  ...rowsOf('read', 'the doorbell', { EAGAIN, EINTR }, 'what was said is obeyed', async (errno) => {
    const life = await live([], bell(errno))
    expect(life.error).toBe(null)
    expect(kindsOf(life)).toEqual(['stopped'])
  }),
  ...rowsOf('read', 'the doorbell', { EBADF, EIO }, 'what was said is obeyed, then the worker ends', async (errno) => {
    const obeyed = await live([], bell(errno))
    expect(kindsOf(obeyed)).toEqual(['stopped'])
    const { error, polled } = await live([{}], bell(errno))
    expect(error?.message).toContain(`errno ${errno}`)
    expect(polled).toHaveLength(1)
  }),
  ...rowsOf('eventfdWrite', 'a worker', { EBADF }, 'what was said is obeyed after a sleep', async () => {
    const life = await live([], quiet, false)
    expect(kindsOf(life)).toEqual(['stopped'])
  }),
]
