// Errors of the kernel and the reasons under which packets are counted, and kernel releases.
import { describe, expect, it } from 'vitest'
import { DROP_REASONS } from '../../../dataplane/drop-reason.ts'
import { reasonForSendErrno, reasonForWriteErrno } from '../../../dataplane/io/errno.ts'
import { isKernelAtLeast } from '../../../dataplane/io/kernel-release.ts'

describe('any errno', () => {
  it('of a send has an outbound reason, of a TUN write an inbound one', () => {
    for (let errno = 1; errno < 200; errno++) {
      expect(DROP_REASONS[reasonForSendErrno(errno)].where).toBe('outbound')
      expect(DROP_REASONS[reasonForWriteErrno(errno)].where).toBe('inbound')
    }
  })

  it('that needs another remedy has another reason', () => {
    expect([11, 5, 77, 22, 9].map(reasonForWriteErrno)).toEqual([
      'tun-backpressure',
      'tun-down',
      'tun-down',
      'tun-rejected',
      'tun-error',
    ])
  })
})

describe('a kernel release', () => {
  it.each<[string, [number, number, number], boolean]>([
    ['6.18.44-fc-v657', [6, 8, 5], true],
    ['6.1.0-25-amd64', [6, 8, 5], false],
    ['6.8.4', [6, 8, 5], false],
    ['6.8.5', [6, 8, 5], true],
    ['6.9', [6, 9, 0], true],
    ['6.10.3', [6, 9, 0], true],
    ['5.12.0-rc1', [5, 12, 0], true],
    ['10.0', [9, 99, 99], true],
    ['unknown', [0, 0, 1], false],
    ['', [0, 0, 0], false],
  ])('%s at least %j: %s', (release, wanted, expected) => {
    expect(isKernelAtLeast(release, wanted)).toBe(expected)
  })
})
