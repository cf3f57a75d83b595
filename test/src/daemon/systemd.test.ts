// What a service manager is told, as sd_notify(3) wants it.
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { SystemdNotifier } from '../../../src/daemon/systemd.ts'
import { datagramReceiver } from '../../support/datagram-receiver.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

async function notifierTo(path: string, more: NodeJS.ProcessEnv = {}) {
  const env: NodeJS.ProcessEnv = { NOTIFY_SOCKET: path, ...more }
  const log = new RecordingLog()
  const notifier = await SystemdNotifier.fromEnvironment(env, log)
  onTestFinished(() => notifier?.close())
  return { notifier, env, log }
}

const somePath = () => join(temporaryDirectory(), 'notify')

test.each([
  ['a path', somePath],
  ['an abstract name', () => `@flannelette-test-${process.pid}-${Math.random()}`],
])('readiness, status and the end are told to %s', async (_, where) => {
  const path = where()
  const received = datagramReceiver(path)
  const { notifier } = await notifierTo(path)
  notifier!.status('starting')
  notifier!.ready()
  notifier!.status('ready: 10.244.1.0/24, 2 peers')
  notifier!.stopping()
  expect(received()).toEqual(['STATUS=starting', 'READY=1', 'STATUS=ready: 10.244.1.0/24, 2 peers', 'STOPPING=1'])
})

test('a status that is still the same is not told again, and is one line', async () => {
  const path = somePath()
  const received = datagramReceiver(path)
  const { notifier } = await notifierTo(path)
  notifier!.status('two\nlines')
  notifier!.status('two\nlines')
  expect(received()).toEqual(['STATUS=two lines'])
})

test('signs of life come at twice the rate that is asked for', async () => {
  const path = somePath()
  const received = datagramReceiver(path)
  await notifierTo(path, { WATCHDOG_USEC: '40000', WATCHDOG_PID: String(process.pid) })
  const signs: string[] = []
  await expect.poll(() => signs.push(...received())).toBeGreaterThan(2)
  expect(new Set(signs)).toEqual(new Set(['WATCHDOG=1']))
})

test('a watchdog of another process is none of ours', async () => {
  vi.useFakeTimers()
  onTestFinished(() => void vi.useRealTimers())
  const path = somePath()
  const received = datagramReceiver(path)
  await notifierTo(path, { WATCHDOG_USEC: '40000', WATCHDOG_PID: '1' })
  vi.advanceTimersByTime(1000)
  expect(received()).toEqual([])
})

test('nobody is told anything without a socket to tell it to', async () => {
  expect(await SystemdNotifier.fromEnvironment({}, new RecordingLog())).toBeNull()
  expect((await notifierTo('vsock:2:1')).notifier).toBeNull()
})

test('programs that are started later do not inherit the socket', async () => {
  const path = somePath()
  datagramReceiver(path)
  const { env } = await notifierTo(path, { WATCHDOG_USEC: '1', WATCHDOG_PID: '1', HOME: '/' })
  expect(env).toEqual({ HOME: '/' })
})

test('a service manager that does not listen costs one warning', async () => {
  const { notifier, log } = await notifierTo(somePath())
  notifier!.ready()
  notifier!.status('ready')
  expect(log.of('systemd-unreachable')).toHaveLength(1)
})
