// Daemons of one host beside each other: seats that are taken and left in this process, each with a log of its own.
import { writeFileSync } from 'node:fs'
import { expect, onTestFinished, test } from 'vitest'
import { meantDaemon } from '../../../src/daemon/meant-daemon.ts'
import { inUseBy, readSeats, Seat, type SeatPlace } from '../../../src/daemon/seats.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

const VXLAN: SeatPlace = {
  devices: ['flannel.1'],
  networks: ['10.244.0.0/16', 'fd00:1::/48'],
  tunnel: { dataplane: 'userspace', addresses: ['192.0.2.1'], port: 8472 },
}
const OTHER: SeatPlace = {
  devices: ['flannel.2'],
  networks: ['10.245.0.0/16'],
  tunnel: { dataplane: 'userspace', addresses: ['192.0.2.1'], port: 4789 },
}

function host() {
  const directory = temporaryDirectory()
  const log = new RecordingLog()
  return {
    directory,
    log,
    seat: async (name: string, files: { subnetFile?: string; dockerOptsFile?: string; apiSocket?: string } = {}) => {
      const seat = new Seat(
        { stateDirectory: `/state/${name}`, subnetFile: `/run/${name}.env`, ...files },
        log,
        directory,
      )
      onTestFinished(() => seat.leave())
      await seat.take()
      return seat
    },
  }
}

test('the first daemon of a host has seat 1, the next ones follow, and a seat that is left is taken again', async () => {
  const { seat, directory } = host()
  const [first, second, third] = [await seat('a'), await seat('b'), await seat('c')]
  expect([first, second, third].map(({ number }) => number)).toEqual([1, 2, 3])
  second.leave()
  expect((await readSeats(directory)).map(({ number, stateDirectory }) => [number, stateDirectory])).toEqual([
    [1, '/state/a'],
    [3, '/state/c'],
  ])
  expect((await seat('d')).number).toBe(2)
  expect((await first.neighbours()).map(({ stateDirectory }) => stateDirectory)).toEqual(['/state/d', '/state/c'])
})

test('daemons of another network namespace are nobody’s neighbours', async () => {
  const { seat, directory } = host()
  writeFileSync(`${directory}/1-1`, '{"pid":1}\n')
  expect((await seat('a')).number).toBe(1)
  expect(await readSeats(directory)).toHaveLength(1)
})

test.each([
  ['subnetFile', '--subnet-file'],
  ['dockerOptsFile', '--docker-opts-file'],
  ['apiSocket', '--api-socket'],
])('a second daemon with the same %s does not start, and is told whose it is', async (name, flag) => {
  const { seat } = host()
  await seat('a', { [name]: '/run/shared' })
  await expect(seat('b', { [name]: '/run/../run/shared' })).rejects.toMatchObject({
    code: 'device-busy',
    message: expect.stringContaining(
      `/run/shared is written by another daemon of this host (pid ${process.pid}, --state-dir /state/a)`,
    ),
    remedy: expect.stringContaining(flag),
  })
})

test.each([
  ['a device', { ...OTHER, devices: ['flannel.1'] }, 'device-busy', /^flannel\.1 is the device of .*\/state\/a/],
  ['a port', { ...OTHER, tunnel: VXLAN.tunnel }, 'port-busy', /^UDP 192\.0\.2\.1:8472 is the port of/],
  [
    'a network',
    { ...OTHER, networks: ['10.244.128.0/17'] },
    'network-overlap',
    /10\.244\.128\.0\/17 overlaps 10\.244\.0\.0\/16/,
  ],
  ['an IPv6 network', { ...OTHER, networks: ['fd00:1::/56'] }, 'network-overlap', /fd00:1::\/56 overlaps fd00:1::\/48/],
])('two daemons cannot have %s in common', async (_, place, code, words) => {
  const { seat } = host()
  const [first, second] = [await seat('a'), await seat('b')]
  await first.announce(VXLAN)
  await expect(second.announce(place)).rejects.toMatchObject({ code, message: expect.stringMatching(words) })
  await second.announce(OTHER)
})

test('another address may have the port; so may two kernels, which share its socket', async () => {
  const { seat, directory } = host()
  const [first, second, third] = [await seat('a'), await seat('b'), await seat('c')]
  const kernel = { dataplane: 'kernel', addresses: ['192.0.2.1'], port: 8472 }
  await first.announce({ ...VXLAN, tunnel: kernel })
  await second.announce({ ...OTHER, tunnel: kernel })
  const elsewhere = { dataplane: 'userspace', addresses: ['192.0.2.9'], port: 8472 }
  await third.announce({ devices: ['flannel.3'], networks: ['10.246.0.0/16'], tunnel: elsewhere })
  expect((await readSeats(directory)).map(({ place }) => place?.tunnel)).toEqual([kernel, kernel, elsewhere])
})

test('what a daemon announced before is its own when it announces anew', async () => {
  const { seat, directory } = host()
  const only = await seat('a')
  await only.announce(VXLAN)
  await only.announce(OTHER)
  await only.announce(VXLAN)
  expect((await readSeats(directory)).map(({ place }) => place)).toEqual([VXLAN])
})

test('what is in use is known when every daemon has said so', async () => {
  const { seat, directory } = host()
  const [first, second] = [await seat('a'), await seat('b')]
  await first.announce(VXLAN)
  expect(inUseBy(await readSeats(directory))).toBeNull()
  await second.announce(OTHER)
  const inUse = inUseBy(await readSeats(directory))!
  expect([...inUse.seats, ...inUse.devices]).toEqual([1, 2, 'flannel.1', 'flannel.2'])
  expect(inUse.networks).toHaveLength(3)
})

test('where no note can be written a daemon goes on as if alone, and says so', async () => {
  const log = new RecordingLog()
  const seat = new Seat({ stateDirectory: '/state/a', subnetFile: '/run/a.env' }, log, '/proc/none')
  await seat.take()
  await seat.announce(VXLAN)
  expect([seat.number, log.of('seat-unguarded').length]).toEqual([1, 1])
})

test('a command means the daemon of the usual directory, and is told of the others', async () => {
  const { seat, directory } = host()
  await seat('a')
  await seat('b')
  expect(await meantDaemon('/state/b', directory)).toEqual({
    stateDirectory: '/state/b',
    subnetFile: '/run/b.env',
    notice: 'on this host runs also: --state-dir /state/a',
  })
})

test('a command means the only daemon that runs, unless the usual one has been here', async () => {
  const { seat, directory } = host()
  await seat('a')
  expect(await meantDaemon('/state/none', directory)).toMatchObject({ stateDirectory: '/state/a', notice: '' })
  const usual = temporaryDirectory()
  expect(await meantDaemon(usual, directory)).toMatchObject({ stateDirectory: usual, subnetFile: null })
})

test('of several daemons a command guesses none', async () => {
  const { seat, directory } = host()
  await seat('a')
  await seat('b')
  await expect(meantDaemon('/state/none', directory)).rejects.toMatchObject({
    code: 'usage',
    remedy: 'say which one is meant: --state-dir /state/a, or --state-dir /state/b',
  })
})
