// `--workers N` and `--source-ports N` of a daemon: packets go through all of them, a persistent device of the other
// queue mode is made anew and said so, and nobody else gets in.
import { expect, test } from 'vitest'
import { readLink } from '../../src/host/ip.ts'
import { answered } from '../support/answered.ts'
import { startDaemon, traceOf, twoHosts } from '../support/daemon-under-test.ts'
import { ip } from '../support/own-namespace.ts'

const DEVICE = 'flannel.1'
/** A stop takes 1.4 s at most; fails at three times as much. */
const STOP_LIMIT_MS = 3 * 1400

const isMultiQueue = async (namespace: string) =>
  (await readLink(DEVICE, { namespace }))?.linkinfo?.info_data?.multi_queue === true

/** Event names of the daemon's warnings and errors. */
const events = (complaints: readonly string[]) => complaints.map((line) => JSON.parse(line).event as string)

test('the number of workers may change over a persistent device: a device of the other mode is made anew', async () => {
  const [first, second] = twoHosts()
  const far = startDaemon(second)
  await far.ready(0)
  const shapes: unknown[] = []
  const recreated: string[][] = []
  for (const workers of [1, 2, 3, 1]) {
    const daemon = startDaemon(first, ['--workers', String(workers), '--log-format', 'json'])
    await daemon.ready(1)
    expect(await isMultiQueue(first.namespace)).toBe(workers > 1)
    const address = far.status!.node!.overlayAddress
    await expect.poll(() => answered(first.namespace, address, 3, 1000), { timeout: 20_000 }).toBe(3)
    shapes.push(traceOf(first))
    recreated.push(events(daemon.complaints))
    const { exitCode, milliseconds } = await daemon.end('SIGTERM')
    expect(exitCode).toBe(0)
    expect(milliseconds).toBeLessThan(STOP_LIMIT_MS)
  }
  expect(recreated).toEqual([[], ['device-recreated'], [], ['device-recreated']])
  for (const shape of shapes) expect(shape).toEqual(shapes[0])
})

test('a device that a daemon holds is not taken from it, whatever the number of workers', async () => {
  const [first] = twoHosts()
  const daemon = startDaemon(first, ['--workers', '2'])
  await daemon.ready(0)
  ip('-n', first.namespace, 'address', 'add', '192.0.2.77/24', 'dev', 'eth0')
  for (const workers of ['1', '2', '3']) {
    const own = { stateDirectory: `${first.stateDirectory}-${workers}`, subnetFile: `${first.subnetFile}-${workers}` }
    const other = { ...first, ...own }
    const intruder = startDaemon(other, ['--workers', workers, '--iface', '192.0.2.77'])
    expect(await intruder.exited()).toBe(1)
    expect(intruder.told.join()).toMatch(/device-busy|held by another process|is the device of another daemon/)
  }
  expect(daemon.status?.state).toBe('ready')
})

test('status says by how many source ports flows are told apart', async () => {
  const [first, second] = twoHosts()
  const [many, one] = [startDaemon(first), startDaemon(second, ['--source-ports', '1'])]
  await many.ready(1)
  await one.ready(1)
  expect(many.status?.entropy).toBe('16 source ports')
  expect(one.status?.entropy).toBe('none')
  expect(ip('netns', 'exec', second.namespace, 'ss', '-Hlun').match(/192\.0\.2\.2:\d+/g)).toHaveLength(1)
  // Those that only send are bound all the same.
  expect(ip('netns', 'exec', first.namespace, 'ss', '-Hlun').match(/192\.0\.2\.1:\d+/g)).toHaveLength(17)
})
