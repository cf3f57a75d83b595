// A host without the vxlan module, for real, in short: a user-mode Linux guest. The whole is in test/uml.
import { guestHost } from '../support/guest-without-vxlan.ts'
import { describeGuestWithoutVxlan } from '../support/guest-without-vxlan-tests.ts'

describeGuestWithoutVxlan(guestHost(), { mebibytes: 4, asksPeers: false })
