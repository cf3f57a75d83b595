// A mixed cluster, and all that may happen to peers and devices in it.
import { DEVICE_EVENTS, describePeerEvents, KERNEL_EVENTS, PEER_EVENTS } from '../support/peer-events.ts'

const all = <T extends string>(table: Readonly<Record<T, unknown>>) => Object.keys(table) as T[]

describePeerEvents({
  name: 'allevents',
  peerEvents: all(PEER_EVENTS),
  kernelEvents: all(KERNEL_EVENTS),
  deviceEvents: all(DEVICE_EVENTS),
})
