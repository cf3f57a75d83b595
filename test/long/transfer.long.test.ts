// A gibibyte between pods, compared by digest: see test/netns/transfer.test.ts.
import { describeTransfers } from '../support/transfers-under-faults.ts'

describeTransfers({ mebibytes: 1024 })
