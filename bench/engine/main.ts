// The engine alone, in memory: `node dist/bench/engine/main.js [PACKETS]`.
import { runScenario, SCENARIOS, type Way } from './scenario.ts'

const DEFAULT_PACKETS = 5_000_000

const packets = Number(process.argv[2] ?? DEFAULT_PACKETS)
if (!Number.isInteger(packets) || packets < 1) {
  console.error('usage: main [PACKETS]')
  process.exit(2)
}

console.log(`${packets} packets each, Node ${process.version}; garbage of both directions together`)
for (const scenario of SCENARIOS) {
  const { outbound, inbound, collections, heapBytesPerPacket, dropped, imbalance } = await runScenario(
    scenario,
    packets,
  )
  console.log(
    [
      scenario.name.padEnd(18),
      `outbound ${inWords(outbound)}`,
      `inbound ${inWords(inbound)}`,
      `${collections} collections`,
      heapBytesPerPacket === null ? '' : `${heapBytesPerPacket.toFixed(3)} heap bytes a packet`,
      dropped === 0 && imbalance === 0 ? '' : `${dropped} dropped, ${imbalance} astray`,
    ].join('  '),
  )
}

function inWords({ packetsPerSecond, gbitPerSecond }: Way): string {
  const nanoseconds = (1e9 / packetsPerSecond).toFixed(0)
  return `${(packetsPerSecond / 1e6).toFixed(2)} M/s (${nanoseconds} ns, ${gbitPerSecond.toFixed(1)} Gbit/s)`
}
