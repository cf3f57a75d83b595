// A diagonal through the ways to forward; test/long runs all of them.
import { describeWay, WAYS } from '../support/forwarding-ways.ts'

/** Of each backend one row, families and kinds of peer in turn. */
const DIAGONAL = [
  WAYS.find(({ family, peer }) => family === 6 && peer === 'kernel'),
  WAYS.find(({ name }) => name === 'udp'),
]

for (const way of DIAGONAL) if (way !== undefined) describeWay(way, 1)
