// The doorbell: each line rings, and a program that fails, as when the kernel overran it, is begun again. Its processes
// are played by an event emitter.
import { EventEmitter } from 'node:events'
import { beforeEach, expect, test, vi } from 'vitest'
import { isElsewhere, isRoute, ringOnChanges, sharedDoorbell } from '../../../src/host/ip-monitor.ts'

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
const kernel = vi.hoisted(() => ({ hasMemory: true }))
vi.mock('node:child_process', () => ({
  spawn: () => {
    if (!kernel.hasMemory) throw new Error('spawn ENOMEM')
    const program = new Program()
    programs.push(program)
    return program
  },
}))

beforeEach(() => {
  programs.length = 0
  kernel.hasMemory = true
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
  vi.advanceTimersByTime(60_000)
  times = 0
  programs[0]?.stderr.emit('data', Buffer.from('netlink receive error No buffer space available (105)\n'))
  expect(times).toBe(1)
  vi.advanceTimersByTime(60_000)
  expect([programs.length, programs[0]?.killed]).toEqual([1, false])
})

test('a program listens a while after its start: what happened until then rings once, after the first and any later one', () => {
  const { times } = rung()
  vi.advanceTimersByTime(60_000)
  expect(times()).toBe(1)
  programs[0]?.emit('close')
  vi.advanceTimersByTime(1000)
  expect(times()).toBe(2) // for what happened without a program
  vi.advanceTimersByTime(60_000)
  expect([times(), programs.length]).toEqual([3, 2])
})

test('a program that the kernel refuses outright is tried again, and costs nobody his life', () => {
  kernel.hasMemory = false
  const { bell, times } = rung()
  vi.advanceTimersByTime(60_000)
  expect(programs).toHaveLength(0)
  kernel.hasMemory = true
  vi.advanceTimersByTime(5000)
  programs[0]?.stdout.emit('data', 'x')
  expect([programs.length, times() > 0]).toEqual([1, true])
  bell.stop()
  expect(vi.getTimerCount()).toBe(0)
})

test.each(['error', 'close'])('after its %s another program is begun, once, and rings for what was missed', (event) => {
  const { times } = rung()
  for (let round = 1; round <= 3; round++) {
    const program = programs.at(-1)!
    program.emit(event, new Error('no buffer space'))
    program.emit('close')
    expect(programs).toHaveLength(round)
    vi.advanceTimersToNextTimer()
    expect([programs.length, times()]).toEqual([round + 1, round])
  }
  programs.at(-1)?.stdout.emit('data', 'x')
  expect(times()).toBe(4)
})

test('one that was killed is back in a moment; one that never runs is tried and rung for every four seconds', () => {
  const { times } = rung()
  /** Milliseconds until another one is begun after the last one has ended. */
  const pause = () => {
    const [before, since] = [programs.length, Date.now()]
    programs.at(-1)?.emit('close')
    while (programs.length === before) vi.advanceTimersToNextTimer()
    return Date.now() - since
  }
  expect(Array.from({ length: 7 }, pause)).toEqual([250, 500, 1000, 2000, 4000, 4000, 4000])
  expect(times()).toBe(7)
  vi.advanceTimersByTime(60_000)
  expect([pause(), pause()]).toEqual([250, 500])
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

test('several listen to one program, each to its own lines; it ends with the last of them and begins with the next', () => {
  const doorbell = sharedDoorbell(['link', 'route'])
  const heard: string[] = []
  const first = doorbell(() => heard.push('first'))
  const second = doorbell(
    () => heard.push('second'),
    (line) => !isRoute(line),
  )
  programs[0]?.stdout.emit('data', '10.0.0.0/8 via 192.0.2.9 dev eth0\n')
  programs[0]?.stdout.emit('data', '2: eth0: <UP>\n')
  programs[0]?.stderr.emit('data', 'netlink receive error\n')
  expect([heard.splice(0), programs.length]).toEqual([['first', 'first', 'second', 'first', 'second'], 1])
  first.stop()
  programs[0]?.stdout.emit('data', '2: eth0: <UP>\n')
  expect([heard.splice(0), programs[0]?.killed]).toEqual([['second'], false])
  second.stop()
  expect(programs[0]?.killed).toBe(true)
  doorbell(() => heard.push('third'))
  programs[1]?.stdout.emit('data', '2: eth0: <UP>\n')
  expect(heard).toEqual(['third'])
})

test.each([
  ['a route', '10.244.2.0/24 via 192.0.2.2 dev eth0 proto 142', true],
  ['one that is gone', 'Deleted fd00:2::/64 dev eth0 proto static metric 1024 pref medium', true],
  ['one of another table', 'local 192.0.2.1 dev eth0 table local proto kernel scope host src 192.0.2.1', true],
  ['a link', '2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP group default', false],
  ['an address', 'Deleted 2: eth0    inet 192.0.2.1/24 scope global eth0', false],
  ['half a line', 'th0: <BROADCAST,MULTICAST,UP> mtu 1500', false],
])('%s is told from what is none', (_, line, expected) => {
  expect(isRoute(line)).toBe(expected)
})

test.each([
  ['a neighbour of pods', '10.244.1.2 dev cni0 lladdr 0a:58:0a:f4:01:02 REACHABLE', true],
  ['one that is looked for', '10.244.1.9 dev cni0  INCOMPLETE', true],
  ['one that is gone', 'Deleted 10.244.1.9 dev cni0  FAILED', true],
  ['a neighbour of ours', '10.244.2.0 dev flannel.1 lladdr 02:00:00:00:00:02 PERMANENT proto 142', false],
  ['an FDB entry of ours', 'Deleted 192.0.2.2 dev flannel.1 lladdr 02:00:00:00:00:02 NOARP PERMANENT', false],
  ['one of a device with a longer name', '10.1.2.0 dev flannel.11 lladdr 02:00:00:00:00:02 PERMANENT', true],
  ['a route that somebody took over', '10.244.2.0/24 dev eth0 scope link', false],
  ['a pod’s link', '9: veth1a@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1450 master cni0 state UP', true],
  ['our link', '3: flannel.1: <BROADCAST,MULTICAST> mtu 1450 qdisc noqueue state DOWN group default', false],
  ['our link that is gone', 'Deleted 3: flannel.1: <BROADCAST,MULTICAST> mtu 1450 qdisc noop state DOWN', false],
  ['our address that is gone', 'Deleted 3: flannel.1    inet 10.244.1.0/32 scope global flannel.1', false],
])('a line of %s', (_, line, elsewhere) => {
  expect(isElsewhere(line, 'flannel.1')).toBe(elsewhere)
})
