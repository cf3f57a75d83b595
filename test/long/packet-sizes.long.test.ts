// Every size of a ping from the smallest one to well above the MTU: none vanishes.
import { describeSizes } from '../support/size-sweep.ts'

describeSizes(Array.from({ length: 1490 - 28 + 1 }, (_, index) => 28 + index))
