// Errors that drivers on an event loop meet: of the sleep on another thread, and of what Node's sockets are made from
// and do not tell. Calls are scripted, Node's sockets played.
import { EventEmitter } from 'node:events'
import { expect, vi } from 'vitest'
import { Counters } from '../../dataplane/engine/counters.ts'
import { ReceiveSlots } from '../../dataplane/io/receive-slots.ts'
import { PacketMemory } from '../../dataplane/memory/packet-memory.ts'
import { EventLoopTurns } from '../../dataplane/worker/event-loop-turns.ts'
import type { WorkerSetup } from '../../dataplane/worker/messages.ts'
import { type ErrorRow, rowsOf } from './error-row.ts'
import { scripted } from './scripted-libc.ts'

const [ENOPROTOOPT, EMFILE] = [92, 24]
const MEMORY_BYTES = 4 * 1024 * 1024
const DATAGRAM = new Uint8Array(8)

const setupOf = (driver: WorkerSetup['driver']) =>
  ({
    ...{ driver, tunFd: 3, socketFd: 4, senderFds: [], wakeFd: 5, maxSegments: 1, encapsulation: 'udp' },
    ...{ vni: 0, mac: 0, underlayAddress: 0, rawPorts: { firstPort: 1, ports: 1 }, counters: new Counters().buffer },
    settings: { overlayAddress: 1, subnet: { address: 0, length: 24 }, mtuBytes: 1472, sourceCheck: 'off' },
  }) as unknown as WorkerSetup

/** How turns end whose sleeps give these results; after them they are told to stop. */
function turnsAfter(...sleeps: number[]): Promise<Error | null> {
  let slept = 0
  scripted.otherwise((name) => {
    if (name === 'pollAside') return sleeps[slept++] ?? 0
    return name === 'eventfdWrite' ? 0 : -11
  })
  return new Promise((resolve) => {
    new EventLoopTurns(setupOf('offload'), {
      hear: () => (slept > sleeps.length ? { type: 'stop' } : undefined),
      report: () => undefined,
      onEnd: resolve,
    })
  })
}

/** The dgram driver over played sockets, and the first of these. */
async function dgramDriver() {
  const played: EventEmitter[] = []
  vi.doMock('node:dgram', () => ({
    createSocket: () => {
      const socket = Object.assign(new EventEmitter(), { bind: () => undefined, close: () => undefined })
      played.push(socket)
      return socket
    },
  }))
  vi.resetModules()
  const { openDriver } = await import('../../dataplane/worker/driver.ts')
  vi.doUnmock('node:dgram')
  const memory = new PacketMemory(MEMORY_BYTES)
  const events = { onReceivable: () => undefined, onRoom: () => undefined }
  const open = () => openDriver({ memory, setup: setupOf('dgram'), events, wide: null })
  return { memory, open, receiver: () => played[0]! }
}

export const EVENT_LOOP_ROWS: readonly ErrorRow[] = [
  {
    call: 'pollAside',
    error: 'any error, once',
    reaction: 'may be a signal: sleeps again',
    check: async () => expect(await turnsAfter(-1, 1, -1, 0)).toBe(null),
  },
  {
    call: 'pollAside',
    error: 'any error, twice in a row',
    reaction: 'the worker ends, and another one takes over',
    check: async () => expect((await turnsAfter(1, -1, -1))?.message).toMatch(/poll failed/),
  },
  ...rowsOf(
    'duplicate',
    'a socket of Node',
    { EMFILE },
    'the worker ends, and another one takes over',
    async (errno) => {
      scripted.otherwise(() => -errno)
      const { open } = await dgramDriver()
      expect(open).toThrow(`errno ${errno}`)
    },
  ),
  ...rowsOf('socketDrops', '', { ENOPROTOOPT }, 'none are known to be lost, and the others arrive', async (errno) => {
    scripted.otherwise((name) => (name === 'socketDrops' ? -errno : 9))
    const { memory, open, receiver } = await dgramDriver()
    const { socket } = open()
    receiver().emit('message', DATAGRAM, { address: '192.0.2.9', port: 8472 })
    const slots = new ReceiveSlots(memory, 4)
    expect([socket.receive(slots), slots.overflowed]).toEqual([1, 0])
  }),
]
