// The engine alone, in memory. Each scenario runs in a process of its own, as a worker has one packet memory in its
// life.
//
//   node dist/bench/engine/main.js [PACKETS]             all scenarios, as a table
//   node dist/bench/engine/main.js PACKETS SCENARIO      one of them by number, as JSON
import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { type Figures, runScenario, SCENARIOS, type Way } from './scenario.ts'

const DEFAULT_PACKETS = 5_000_000

const packets = Number(process.argv[2] ?? DEFAULT_PACKETS)
const chosen = process.argv[3] === undefined ? null : SCENARIOS[Number(process.argv[3])]
if (!Number.isInteger(packets) || packets < 1 || chosen === undefined) {
  console.error(`usage: main [PACKETS [0-${SCENARIOS.length - 1}]]`)
  process.exitCode = 2
} else if (chosen !== null) {
  console.log(JSON.stringify(await runScenario(chosen, packets)))
} else {
  console.log(`${packets} packets each, Node ${process.version}; garbage of both directions together`)
  SCENARIOS.forEach(({ name }, index) => {
    const self = fileURLToPath(import.meta.url)
    const output = execFileSync(process.execPath, [self, String(packets), String(index)], { encoding: 'utf8' })
    console.log(row(name, JSON.parse(output)))
  })
}

function row(name: string, figures: Figures): string {
  const { outbound, inbound, collections, heapBytesPerPacket, dropped, imbalance } = figures
  return [
    name.padEnd(Math.max(...SCENARIOS.map((one) => one.name.length))),
    `outbound ${inWords(outbound)}`,
    `inbound ${inWords(inbound)}`,
    `${collections} collections`,
    heapBytesPerPacket === null ? '' : `${heapBytesPerPacket.toFixed(3)} heap bytes a packet`,
    dropped === 0 && imbalance === 0 ? '' : `${dropped} dropped, ${imbalance} astray`,
  ].join('  ')
}

function inWords({ packetsPerSecond, gbitPerSecond }: Way): string {
  const nanoseconds = (1e9 / packetsPerSecond).toFixed(0)
  return `${(packetsPerSecond / 1e6).toFixed(2)} M/s (${nanoseconds} ns, ${gbitPerSecond.toFixed(1)} Gbit/s)`
}
