// Errors of a send or a TUN write to the reasons under which packets are counted.
import type { DropReason } from '../drop-reason.ts'

// errno(3) values of Linux on x86-64 and arm64.
export const EPERM = 1
export const EINTR = 4
export const EIO = 5
export const EBADF = 9
export const EAGAIN = 11
export const EACCES = 13
export const EBUSY = 16
export const EINVAL = 22
export const EBADFD = 77
export const EMSGSIZE = 90
export const EADDRINUSE = 98
export const EADDRNOTAVAIL = 99
export const ENETDOWN = 100
export const ENETUNREACH = 101
export const ENOBUFS = 105
export const ECONNREFUSED = 111
export const EHOSTUNREACH = 113
export const EINPROGRESS = 115

const SEND_REASONS = new Map<number, DropReason>([
  [EAGAIN, 'tx-queue-full'],
  [ENOBUFS, 'tx-nobufs'],
  [EMSGSIZE, 'tx-too-big'],
  [EPERM, 'tx-unreachable'],
  [EACCES, 'tx-unreachable'],
  [ENETDOWN, 'tx-unreachable'],
  [ENETUNREACH, 'tx-unreachable'],
  [EHOSTUNREACH, 'tx-unreachable'],
  [ECONNREFUSED, 'tx-unreachable'],
])

const WRITE_REASONS = new Map<number, DropReason>([
  [EAGAIN, 'tun-backpressure'],
  [EIO, 'tun-down'],
  [EBADFD, 'tun-down'],
  [EINVAL, 'tun-rejected'],
])

/** Why packets of a failed send are dropped. */
export function reasonForSendErrno(errno: number): DropReason {
  return SEND_REASONS.get(errno) ?? 'tx-error'
}

/**
 * Whether what a TUN write was refused for may lie in the shape of what was written (its virtio-net header, its size),
 * so that smaller packets may pass: not where the queue is full, the device down (EIO) or gone.
 */
export function isRefusedShape(errno: number): boolean {
  return errno !== EAGAIN && errno !== EIO && errno !== EBADFD && errno !== EBADF
}

/** Why packets of a failed TUN write are dropped. */
export function reasonForWriteErrno(errno: number): DropReason {
  return WRITE_REASONS.get(errno) ?? 'tun-error'
}
