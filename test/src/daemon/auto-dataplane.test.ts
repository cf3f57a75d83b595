// `--dataplane auto`: which one is taken, and what is said of it.
import { describe, expect, test } from 'vitest'
import { AutoDataplane } from '../../../src/daemon/auto-dataplane.ts'
import { FlanneletteError } from '../../../src/errors.ts'
import type { LocalVtep } from '../../../src/host/dataplane.ts'
import { FakeDataplane } from '../../support/fake-dataplane.ts'
import { RecordingLog } from '../../support/recording-log.ts'

const VXLAN = { encapsulation: 'vxlan', deviceName: 'flannel.1' } as LocalVtep

class FakeKernel extends FakeDataplane {
  override readonly kind = 'kernel' as never
  override readonly driver = 'kernel' as never
}

function auto(obstacle: () => Promise<string | null>) {
  const [kernel, userspace, log] = [new FakeKernel(), new FakeDataplane(), new RecordingLog()]
  const dataplane = new AutoDataplane({ kernel: () => kernel, userspace: () => userspace, obstacle, log })
  return { dataplane, kernel, userspace, log }
}

describe('auto', () => {
  test('takes the kernel where it has vxlan devices, and says so', async () => {
    const { dataplane, kernel, userspace, log } = auto(async () => null)
    await dataplane.prepare(VXLAN)
    await dataplane.start(VXLAN)
    expect([kernel.outline, kernel.local, userspace.outline]).toEqual([VXLAN, VXLAN, null])
    expect(dataplane).toMatchObject({ kind: 'kernel', driver: 'kernel', why: 'auto: this kernel has vxlan devices' })
    expect(log.of('dataplane-chosen').map(({ message }) => message)).toEqual([
      'kernel dataplane, chosen by auto: this kernel has vxlan devices',
    ])
  })

  test('takes the userspace engine where the kernel has none, with the reason', async () => {
    const { dataplane, userspace } = auto(async () => 'this kernel has no vxlan devices')
    await dataplane.prepare(VXLAN)
    expect(userspace.outline).toBe(VXLAN)
    expect(dataplane).toMatchObject({ kind: 'userspace', why: 'auto: this kernel has no vxlan devices' })
    expect(dataplane.inner).toBe(userspace)
  })

  test('takes the userspace engine for a backend that the kernel has no tunnel for, without asking it', async () => {
    const { dataplane } = auto(() => Promise.reject(new Error('asked')))
    await dataplane.prepare({ ...VXLAN, encapsulation: 'udp' })
    expect(dataplane).toMatchObject({ kind: 'userspace', why: 'auto: the kernel has no tunnel for the udp backend' })
  })

  test('takes none when the kernel does not let us ask, and can still be stopped and looked at', async () => {
    const { dataplane, kernel, userspace } = auto(() => Promise.reject(new FlanneletteError('not-permitted', 'no')))
    await expect(dataplane.prepare(VXLAN)).rejects.toMatchObject({ code: 'not-permitted' })
    await dataplane.stop('keep')
    expect([kernel.outline, userspace.outline, dataplane.pendingSubnets().size]).toEqual([null, null, 0])
    expect(dataplane.why).toBe('auto: not chosen yet')
  })

  test('hands everything over to the one that was taken', async () => {
    const { dataplane, kernel } = auto(async () => null)
    await dataplane.prepare(VXLAN)
    kernel.trouble = 'the overlay device is gone'
    kernel.waiting = new Map([['10.244.2.0/24', 'no buffer space']])
    expect(await dataplane.replacePeers([], 'test')).toBe(1)
    await dataplane.moveUnderlay({ ...VXLAN, underlayAddress: 9 })
    await dataplane.changeMtu({ ...VXLAN, mtuBytes: 1400 })
    expect(kernel.local).toMatchObject({ mtuBytes: 1400 })
    expect([dataplane.impairment(), dataplane.pendingSubnets()]).toEqual(['the overlay device is gone', kernel.waiting])
    expect(dataplane.counters()).toEqual(kernel.counters())
    expect(dataplane.books).toBe(kernel.books)
    await dataplane.stop('remove')
    expect(kernel.stops).toEqual(['remove'])
  })
})
