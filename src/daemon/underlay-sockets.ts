// The sockets of the userspace dataplane: one that receives for each worker, all on the service port, and a few that send
// from other ports.
import {
  closeDescriptor,
  errno,
  formatIpv4,
  type OpenUdpSocket,
  openSendingSockets,
  openUnderlaySockets,
} from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import type { Log } from '../log.ts'
import type { VtepOutline } from './dataplane.ts'

export interface UnderlaySockets {
  /** One for each worker. */
  readonly receiving: readonly OpenUdpSocket[]
  /** One for each source port; empty when all is sent from the service port. */
  readonly sendingFds: readonly number[]
  /** Source ports that were asked for and could not be had. */
  readonly missingPorts: number
}

export interface UnderlaySocketsWanted {
  readonly workers: number
  /** Source ports; 1 is the service port alone. */
  readonly sourcePorts: number
}

/** Opens all of them, or none. @throws FlanneletteError port-busy, interface-unsuitable, not-permitted */
export async function openSockets(
  local: VtepOutline,
  wanted: UnderlaySocketsWanted,
  log: Log,
): Promise<UnderlaySockets> {
  const { underlayAddress, port } = local
  const receiving = await openUnderlaySockets(underlayAddress, port, wanted.workers)
  if ('step' in receiving) throw socketError(underlayAddress, port, receiving.errno)
  if (wanted.sourcePorts <= 1) return { receiving, sendingFds: [], missingPorts: 0 }
  const sendingFds = await openSendingSockets(underlayAddress, wanted.sourcePorts)
  if (sendingFds.length < wanted.sourcePorts) {
    const got = `${sendingFds.length} of ${wanted.sourcePorts} source ports could be opened`
    log.warn('source-ports-reduced', `${got}: flows spread less over links and cores of the underlay`)
  }
  return { receiving, sendingFds, missingPorts: wanted.sourcePorts - sendingFds.length }
}

export async function closeSockets({ receiving, sendingFds }: UnderlaySockets): Promise<void> {
  for (const { fd } of receiving) await closeDescriptor(fd)
  for (const fd of sendingFds) await closeDescriptor(fd)
}

/** How flows are told apart from outside, in words for the status. */
export function entropyOf({ sendingFds }: UnderlaySockets): string {
  return sendingFds.length < 2 ? 'none' : `${sendingFds.length} source ports`
}

function socketError(underlayAddress: number, port: number, failure: number): FlanneletteError {
  const where = `UDP ${formatIpv4(underlayAddress)}:${port}`
  if (failure === errno.EADDRINUSE) {
    return new FlanneletteError('port-busy', `${where} is in use by another program or by a kernel vxlan device`, {
      remedy: `find it with "ss -lunp sport = ${port}" and "ip -d link show type vxlan", then stop or delete it`,
    })
  }
  if (failure === errno.EADDRNOTAVAIL) {
    return new FlanneletteError('interface-unsuitable', `${where} cannot be bound: the address is not on this host`, {
      remedy: 'choose the interface with --iface',
    })
  }
  return new FlanneletteError('not-permitted', `${where} cannot be opened (errno ${failure})`, {
    remedy: 'run as root or with CAP_NET_ADMIN',
  })
}
