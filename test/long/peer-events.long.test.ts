// A mixed cluster, and all that may happen to peers and devices in it: over IPv4, and over the device of IPv6.
import { IPV6_GROUND } from '../support/event-ground.ts'
import { DEVICE_EVENTS, describePeerEvents, KERNEL_EVENTS, PEER_EVENTS } from '../support/peer-events.ts'

const all = <T extends string>(table: Readonly<Record<T, unknown>>) => Object.keys(table) as T[]
const lists = { peerEvents: all(PEER_EVENTS), kernelEvents: all(KERNEL_EVENTS) }

describePeerEvents({ ...lists, name: 'allevents', deviceEvents: all(DEVICE_EVENTS) })

describePeerEvents({
  ...lists,
  name: 'v6events',
  ground: IPV6_GROUND,
  // A link that is set down loses its IPv6 addresses for good: the underlay itself is gone then.
  deviceEvents: all(DEVICE_EVENTS).filter((event) => event !== 'underlay set down and up'),
})
