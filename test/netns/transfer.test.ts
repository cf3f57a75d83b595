// TCP transfers between pods, compared by digest: plain, over an underlay that loses and repeats packets, and while a
// daemon is killed, also with its store gone. The same at full size is in test/long.
import { describeTransfers } from '../support/transfers-under-faults.ts'

describeTransfers({ mebibytes: 64 })
