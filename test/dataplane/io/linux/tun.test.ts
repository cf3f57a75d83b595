// The TUN when the kernel is in trouble: what is tried again, how long is waited, and what is given back by value.
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { EAGAIN, EBADFD, EINTR, EINVAL, EIO } from '../../../../dataplane/io/errno.ts'
import { Tun } from '../../../../dataplane/io/linux/tun.ts'
import { PacketMemory } from '../../../../dataplane/memory/packet-memory.ts'
import { scripted } from '../../../support/scripted-libc.ts'

vi.mock('../../../../dataplane/io/linux/libc.ts', async () => {
  const { libcModule } = await import('../../../support/scripted-libc.ts')
  return libcModule
})

const device = new Tun(new PacketMemory(65536), 7)

beforeEach(() => scripted.reset())

describe('reading', () => {
  test('that is interrupted is tried again', () => {
    scripted.give('read', -EINTR, -EINTR, 94)
    expect(device.read(4096, 1000)).toBe(94)
  })

  test('that would wait gives 0', () => {
    scripted.give('read', -EAGAIN)
    expect(device.read(4096, 1000)).toBe(0)
  })

  test.each([EIO, EBADFD, 9, 14])('that fails with errno %i gives it, once', (errno) => {
    scripted.give('read', -errno)
    expect(device.read(4096, 1000)).toBe(-errno)
    expect(scripted.made).toEqual(['read'])
  })
})

describe('writing', () => {
  test('that is interrupted is tried again', () => {
    scripted.give('writev', -EINTR, 94)
    expect(device.write(4096, 1)).toBe(94)
  })

  test('that would wait waits once for room, and goes on', () => {
    scripted.give('writev', -EAGAIN, 94)
    scripted.give('poll', 1)
    expect(device.write(4096, 1)).toBe(94)
    expect(scripted.made).toEqual(['writev', 'poll', 'writev'])
  })

  test('that would still wait then is given up, not tried for ever', () => {
    scripted.give('writev', -EAGAIN, -EAGAIN)
    scripted.give('poll', 0)
    expect(device.write(4096, 1)).toBe(-EAGAIN)
    expect(scripted.made).toEqual(['writev', 'poll', 'writev'])
  })

  test.each([EIO, EINVAL, EBADFD])('that fails with errno %i gives it, once', (errno) => {
    scripted.give('writev', -errno)
    expect(device.write(4096, 1)).toBe(-errno)
    expect(scripted.made).toEqual(['writev'])
  })
})
