// The doorbell: each line rings, and a program that fails, as when the kernel overran it, is begun again. Its processes
// are played by an event emitter.
import { EventEmitter } from 'node:events'
import { beforeEach, expect, test, vi } from 'vitest'
import { ringOnChanges } from '../../../src/host/ip-monitor.ts'

class Program extends EventEmitter {
  readonly stdout = new EventEmitter()
  readonly stderr = new EventEmitter()
  killed = false
  unref() {}
  kill() {
    this.killed = true
  }
}

const programs = vi.hoisted(() => [] as Program[])
vi.mock('node:child_process', () => ({
  spawn: () => {
    const program = new Program()
    programs.push(program)
    return program
  },
}))

beforeEach(() => {
  programs.length = 0
  vi.useFakeTimers()
  return () => vi.useRealTimers()
})

function rung() {
  let times = 0
  const bell = ringOnChanges(() => times++)
  return { bell, times: () => times }
}

test('every line rings', () => {
  const { times } = rung()
  programs[0]?.stdout.emit('data', '2: eth0: <UP>\n')
  programs[0]?.stdout.emit('data', 'Deleted 2: eth0\n')
  expect(times()).toBe(2)
})

test('what the kernel could not tell rings, whatever lines are wanted, and the program stays', () => {
  let times = 0
  ringOnChanges(() => times++, { objects: ['neigh'], concerns: () => false })
  programs[0]?.stderr.emit('data', Buffer.from('netlink receive error No buffer space available (105)\n'))
  vi.advanceTimersByTime(60_000)
  expect([times, programs.length, programs[0]?.killed]).toEqual([1, 1, false])
})

test.each(['error', 'close'])('after its %s another program is begun, once, and rings for what was missed', (event) => {
  const { times } = rung()
  for (let round = 1; round <= 3; round++) {
    const program = programs.at(-1)!
    program.emit(event, new Error('no buffer space'))
    program.emit('close')
    expect(programs).toHaveLength(round)
    vi.advanceTimersByTime(5000)
    expect([programs.length, times()]).toEqual([round + 1, round])
  }
  programs.at(-1)?.stdout.emit('data', 'x')
  expect(times()).toBe(4)
})

test('after a stop nothing is begun and nothing rings', () => {
  const { bell, times } = rung()
  programs[0]?.emit('close')
  bell.stop()
  vi.advanceTimersByTime(60_000)
  expect([programs.length, times()]).toEqual([1, 0])
  const other = rung()
  other.bell.stop()
  expect(programs.at(-1)?.killed).toBe(true)
})

test('lines that need not ring do not, unless one beside them does, or they come in pieces', () => {
  let times = 0
  ringOnChanges(() => times++, { objects: ['neigh'], concerns: (line) => !line.startsWith('no ') })
  programs[0]?.stdout.emit('data', Buffer.from('no 1\nno 2\n'))
  expect(times).toBe(0)
  programs[0]?.stdout.emit('data', Buffer.from('no 3\nyes 4\nno 5\n'))
  expect(times).toBe(1)
  programs[0]?.stdout.emit('data', Buffer.from('no 6\nn'))
  expect(times).toBe(2)
})
