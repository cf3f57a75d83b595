// Whether a UDP port of another host is refused: one empty datagram, and a look whether ICMP comes back. A tunnel that
// listens drops it (ours counts it as `vxlan-short`), so silence proves nothing but refusal proves that nobody listens.
import { createSocket } from 'node:dgram'

export type UdpAnswer = 'refused' | 'silent'

/**
 * Sends from `localAddress`, of the family of `address`, and listens for `waitMs`.
 * @throws Error when the datagram cannot even be sent (no such local address, no route)
 */
export function askUdpPort(address: string, port: number, localAddress: string, waitMs: number): Promise<UdpAnswer> {
  return new Promise((resolve, reject) => {
    const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4')
    const done = (answer: UdpAnswer) => {
      clearTimeout(timer)
      socket.close()
      resolve(answer)
    }
    const timer = setTimeout(() => done('silent'), waitMs)
    socket.on('error', (error: NodeJS.ErrnoException) => {
      // A connected socket is told of the port that is unreachable (udp(7)).
      if (error.code === 'ECONNREFUSED') return done('refused')
      clearTimeout(timer)
      socket.close()
      reject(error)
    })
    socket.bind(0, localAddress, () =>
      socket.connect(port, address, () => {
        socket.send(new Uint8Array(0), () => {})
      }),
    )
  })
}
