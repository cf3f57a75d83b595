// Whom a datagram seems to come from where it arrives: how address translation on its way shows.
import { formatIpv4 } from '../../dataplane/wire/address.ts'
import { getHeaderBytes, getSource } from '../../dataplane/wire/ipv4.ts'
import { getDestinationPort, getSourcePort } from '../../dataplane/wire/udp.ts'
import { NamespaceSocket } from './namespace-socket.ts'

export interface Sender {
  readonly namespace: string
  /** Bound to this; absent: the kernel chooses. */
  readonly address?: string
}

export interface Receiver {
  readonly namespace: string
  readonly address: string
}

/** What arrives at a port, by outer headers. */
export interface Arrival {
  readonly source: string
  readonly port: number
}

/** Another one each time: what is late of an earlier question is no answer to this one. */
let port = 4711
const LIMIT_MS = 15_000

/** Sends until one arrives, and gives its source; `null` when none does. */
export async function seenSource(from: Sender, to: Receiver): Promise<string | null> {
  return (await arrivalOf(from, to, { namespace: to.namespace }))?.source ?? null
}

/** The same, seen elsewhere on the way: at another namespace and port, as that of a tunnel. */
export async function arrivalOf(
  from: Sender,
  to: Receiver,
  seenAt: { readonly namespace: string; readonly port?: number },
): Promise<Arrival | null> {
  const ownPort = port++
  const wanted = seenAt.port ?? ownPort
  const arriving = NamespaceSocket.arriving(seenAt.namespace)
  const name = from.address === undefined ? {} : { from: [from.address, 0] as const }
  const sender = NamespaceSocket.udp(from.namespace, { ...name, to: [to.address, ownPort] })
  const deadline = performance.now() + LIMIT_MS
  try {
    while (performance.now() < deadline) {
      await sender.write(new TextEncoder().encode('who am I'))
      for (const packet of await arriving.readMany(1, 100)) {
        const view = new DataView(packet.buffer, packet.byteOffset, packet.length)
        const udp = getHeaderBytes(view, 0)
        if (getDestinationPort(view, udp) !== wanted) continue
        return { source: formatIpv4(getSource(view, 0)), port: getSourcePort(view, udp) }
      }
    }
    return null
  } finally {
    sender.close()
    arriving.close()
  }
}
