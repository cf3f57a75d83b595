// A host's address on the underlay is replaced while its daemon runs: pods reach each other again within seconds.
import { movesItsUnderlay } from '../support/underlay-move.ts'

movesItsUnderlay('a userspace and a kernel host that change their addresses at once', {
  name: 'move',
  kernel: ['host2'],
})
