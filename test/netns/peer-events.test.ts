// A mixed cluster, and what happens to peers and devices in it: a part of the list that test/long goes through.
import { describePeerEvents } from '../support/peer-events.ts'

describePeerEvents({
  name: 'events',
  peerEvents: ['gets another MAC', 'gets another subnet', 'leaves', 'comes back'],
  kernelEvents: ['has its route led elsewhere under our tag'],
  deviceEvents: ['deleted device', 'device set down and up'],
})
