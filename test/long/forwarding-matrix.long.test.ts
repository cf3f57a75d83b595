// Every way to forward, with every kind of peer: pings, a transfer by digest, throughput, and what is particular to it.
import { describeWay, WAYS } from '../support/forwarding-ways.ts'

for (const way of WAYS) describeWay(way, 3)
