// Micro-benchmarks as a table: nanoseconds and heap bytes per packet. Each case runs in a process of its own, so that
// none inherits what the compiler learned from another.
//
//   node dist/bench/micro/main.js [SECONDS]          all cases, as a table
//   node dist/bench/micro/main.js SECONDS CASE       one of them by number, as JSON
import { execFileSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { CASES } from './cases.ts'
import { type Measured, measure } from './measure.ts'

const DEFAULT_SECONDS = 1

const seconds = Number(process.argv[2] ?? DEFAULT_SECONDS)
const chosen = process.argv[3] === undefined ? null : CASES[Number(process.argv[3])]
if (!(seconds > 0) || chosen === undefined) {
  console.error(`usage: main [SECONDS [0-${CASES.length - 1}]]`)
  process.exitCode = 2
} else if (chosen !== null) {
  console.log(JSON.stringify(await measure(chosen.prepare(), seconds)))
} else {
  console.log(`Node ${process.version}, about ${seconds} s each`)
  CASES.forEach(({ name }, index) => {
    const self = fileURLToPath(import.meta.url)
    const output = execFileSync(process.execPath, [self, String(seconds), String(index)], { encoding: 'utf8' })
    console.log(row(name, JSON.parse(output)))
  })
}

function row(name: string, { nanosecondsPerPacket, marginPercent, heapBytesPerPacket }: Measured): string {
  const time = `${nanosecondsPerPacket.toFixed(1).padStart(8)} ns ± ${marginPercent.toFixed(1)} %`
  const heap = heapBytesPerPacket === null ? 'heap unknown: collected' : `${heapBytesPerPacket.toFixed(2)} heap bytes`
  return `${name.padEnd(30)} ${time.padEnd(22)} ${heap}`
}
