// A diagonal through the ways to forward; test/long runs all of them.
import { describeWay, WAYS } from '../support/forwarding-ways.ts'

/** Of each backend one row, families and kinds of peer in turn. */
const DIAGONAL = WAYS.filter(({ name, family, peer }) => {
  return name === 'udp' || (name === 'dual' && family === 6 && peer === 'kernel')
})

for (const way of DIAGONAL) describeWay(way, 1)
