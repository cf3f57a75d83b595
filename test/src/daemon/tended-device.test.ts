// What is done about an overlay device that somebody else has been at, over a device that is played.
import { beforeEach, describe, expect, test, vi } from 'vitest'
import type { OpenTun } from '../../../dataplane/index.ts'
import { TendedDevice } from '../../../src/daemon/tended-device.ts'
import { FlanneletteError } from '../../../src/errors.ts'
import type { LocalVtep } from '../../../src/host/dataplane.ts'
import { RecordingLog } from '../../support/recording-log.ts'

const LOCAL = { deviceName: 'flannel.1' } as LocalVtep
const WISHES = { workers: 2, header: true, tunOffload: true }
const EIO = 5

const host = vi.hoisted(() => ({
  steps: [] as string[],
  nextFd: 10,
  isDressed: true,
  /** Happens while the host is looked at. */
  meanwhile: () => {},
  openFailure: null as Error | null,
  dressFailure: null as Error | null,
}))
vi.mock('../../../src/daemon/overlay-device.ts', () => ({
  openDevice: async (_name: string, { workers }: { workers: number }) => {
    if (host.openFailure !== null) throw host.openFailure
    host.steps.push('open')
    return Array.from({ length: workers }, () => ({ fd: host.nextFd++ }))
  },
  dress: async () => {
    host.steps.push('dress')
    if (host.dressFailure !== null) throw host.dressFailure
  },
  isDressed: async () => {
    host.meanwhile()
    return host.isDressed
  },
  closeAll: async (tuns: readonly OpenTun[]) => void host.steps.push(`close ${tuns.map(({ fd }) => fd)}`),
}))
vi.mock('../../../dataplane/index.ts', async (original) => ({
  ...(await original<object>()),
  keepOverlayDevice: async (fd: number) => void host.steps.push(`keep ${fd}`),
}))

beforeEach(() => {
  Object.assign(host, { nextFd: 10, isDressed: true, meanwhile: () => {}, openFailure: null, dressFailure: null })
})

async function opened() {
  const log = new RecordingLog()
  const device = new TendedDevice(WISHES, log)
  await device.open('flannel.1')
  host.steps.length = 0
  const replaced = vi.fn((fds: readonly number[]) => void host.steps.push(`replace ${fds}`))
  const mend = () => device.mend(LOCAL, replaced)
  return { device, log, mend, events: () => log.lines.map(({ event }) => event) }
}

describe('a device', () => {
  test('that is as it should be is left alone', async () => {
    const { device, mend, events } = await opened()
    await mend()
    expect([host.steps, events(), device.impairment()]).toEqual([[], [], null])
  })

  test('that was set down or flushed is dressed again', async () => {
    const { device, mend, events } = await opened()
    host.isDressed = false
    await mend()
    expect([host.steps, events(), device.impairment()]).toEqual([['dress'], ['device-restored'], null])
  })

  test('that cannot be looked at is not lost for that', async () => {
    const { device, mend, events } = await opened()
    host.meanwhile = () => {
      throw new Error('EMFILE: too many open files')
    }
    expect(await mend()).toBe(false)
    expect([host.steps, events(), device.impairment()]).toEqual([[], ['device-unseen'], null])
    expect(device.unseen).toBe('EMFILE: too many open files')
    host.meanwhile = () => {}
    expect(await mend()).toBe(true)
    expect(device.unseen).toBeNull()
  })

  test('that is gone is made anew, and the lost one closed once workers have the new one', async () => {
    const { device, mend, events } = await opened()
    device.lose('flannel.1', EIO)
    device.lose('flannel.1', EIO)
    expect(device.impairment()).toBe('the overlay device is gone or lacks its route')
    await mend()
    expect(host.steps).toEqual(['open', 'dress', 'keep 12', 'replace 12,13', 'close 10,11'])
    expect(events()).toEqual(['device-lost', 'device-restored'])
    expect([device.queues.map(({ fd }) => fd), device.impairment()]).toEqual([[12, 13], null])
  })

  test.each([true, false])('that a worker finds gone during a look is made anew (look: %s)', async (isDressed) => {
    const { device, mend } = await opened()
    host.isDressed = isDressed
    host.meanwhile = () => device.lose('flannel.1', EIO)
    await mend()
    expect(host.steps).toEqual(['open', 'dress', 'keep 12', 'replace 12,13', 'close 10,11'])
  })

  test('that cannot be made is tried again, with the one before in hand', async () => {
    const { device, mend } = await opened()
    device.lose('flannel.1', EIO)
    host.openFailure = new Error('no more memory')
    await mend()
    expect(device.queues.map(({ fd }) => fd)).toEqual([10, 11])
    expect(device.impairment()).not.toBeNull()
    host.openFailure = null
    await mend()
    expect(device.impairment()).toBeNull()
  })

  test('that was made and cannot be dressed is closed again, and what is in the way is named', async () => {
    const { device, mend } = await opened()
    device.lose('flannel.1', EIO)
    host.dressFailure = new FlanneletteError('network-overlap', 'a route is in the way', { remedy: '' })
    await mend()
    expect(host.steps).toEqual(['open', 'dress', 'close 12,13'])
    expect(device.impairment()).toBe('a route is in the way')
    host.dressFailure = new Error('something else')
    await mend()
    expect(device.impairment()).toBe('the overlay device is gone or lacks its route')
  })

  test('that is rehearsed is let go at once', async () => {
    const { device } = await opened()
    await device.rehearse('flannel.try')
    expect([host.steps, device.queues.length]).toEqual([['open', 'close 12,13'], 2])
  })
})
