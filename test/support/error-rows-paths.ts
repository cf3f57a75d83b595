// Errors of the calls by which a socket learns what the way to a peer takes, and of opening what it needs for that.
import { expect } from 'vitest'
import { EACCES, ENETUNREACH, EPERM } from '../../dataplane/io/errno.ts'
import { PathProbe } from '../../dataplane/io/linux/path-probe.ts'
import { openPathSockets } from '../../dataplane/io/linux/udp-open.ts'
import { type ErrorRow, rowsOf } from './error-row.ts'
import { closes, GRANTED_FD, grantAllBut, scripted } from './scripted-libc.ts'

const [EMFILE, EINVAL, ENOTCONN] = [24, 22, 107]
const PEER = 0xc0000202
const LOOPBACK = 0x7f000001
const ask = () => new PathProbe(GRANTED_FD, null).payloadTo(PEER, 8472)

export const PATH_ROWS: readonly ErrorRow[] = [
  ...rowsOf('connect', 'a question about a way', { ENETUNREACH, EACCES, EPERM, EINVAL }, 'no answer', (errno) => {
    scripted.give('connect', -errno)
    expect(ask()).toBe(-errno)
    expect(scripted.made).toEqual(['connect'])
  }),
  ...rowsOf('getsockopt', 'IP_MTU of a way', { ENOTCONN, EINVAL }, 'no answer', (errno) => {
    scripted.give('connect', 0)
    scripted.give('getsockopt', -errno)
    expect(ask()).toBe(-errno)
  }),
  {
    call: 'getsockopt',
    error: 'an MTU that does not even hold the outer headers',
    reaction: 'nothing passes whole',
    check: () => {
      scripted.give('connect', 0)
      scripted.give('getsockopt', 8)
      expect(ask()).toBe(0)
    },
  },
  ...rowsOf('socket', 'the second socket for ways', { EMFILE }, 'fails, nothing left open', (errno) => {
    let calls = 0
    grantAllBut((name) => (name === 'socket' && ++calls === 2 ? errno : undefined))
    expect(openPathSockets(LOOPBACK)).toMatchObject({ step: 'bind' })
    expect(closes()).toBe(1)
  }),
]
