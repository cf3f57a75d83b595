// One measurement of one overlay: put load on it, say what arrived and what it cost.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { FlanneletteError } from '../../src/errors.ts'
import { attempt, commandFailure, inNamespace } from '../../src/host/command.ts'
import { iperf } from '../../src/lab/iperf.ts'
import type { Endpoint } from '../../src/lab/ping.ts'
import type { BlastResult } from './blast.ts'
import type { Load } from './guards.ts'
import type { Sample } from './rounds.ts'

/** UDP payload bytes of a small packet. */
export const SMALL_PACKET_BYTES = 64
const PORT = 5555
/** The receiver outlives the sender by what the last packets need; it counts from its first packet to its last. */
const LAST_PACKETS_MS = 500
/** USER_HZ, which Linux fixes at 100 on every architecture we run on (man 7 time). */
const TICKS_PER_SECOND = 100

/**
 * TCP: one iperf3 stream, Gbit/s and Gbit received. Small packets: one flow of 64-byte datagrams, received a second.
 */
export async function measure(load: Load, from: Endpoint, to: Endpoint, seconds: number): Promise<Sample> {
  const before = busySeconds()
  const sample = await (load === 'tcp' ? tcp : smallPackets)(from, to, seconds)
  return { ...sample, cpuSeconds: busySeconds() - before }
}

async function tcp(from: Endpoint, to: Endpoint, seconds: number): Promise<Omit<Sample, 'cpuSeconds'>> {
  const { bitsPerSecond, bytes } = await iperf(from, to, { seconds })
  return { value: bitsPerSecond / 1e9, moved: (bytes * 8) / 1e9 }
}

async function smallPackets(from: Endpoint, to: Endpoint, seconds: number): Promise<Omit<Sample, 'cpuSeconds'>> {
  const counter = await countPackets(to, PORT)
  try {
    await blast(from, ['send', to.address, PORT, SMALL_PACKET_BYTES, seconds])
    await pause(LAST_PACKETS_MS)
  } finally {
    counter.end()
  }
  const { packetsPerSecond, packets } = await counter.result
  return { value: packetsPerSecond, moved: packets }
}

export interface PacketCounter {
  end(): void
  /** What has come from start to end. */
  readonly result: Promise<BlastResult>
}

/** Counts packets to a member from now on. @throws FlanneletteError `host-command` when it cannot */
export async function countPackets(at: Endpoint, port: number): Promise<PacketCounter> {
  const argv = [process.execPath, blastProgram(), 'receive', at.address, String(port)]
  const [program = '', ...words] = inNamespace(at.namespace, argv)
  const child = spawn(program, words, { stdio: ['pipe', 'pipe', 'pipe'] })
  const result = { exitCode: 0, stdout: '', stderr: '' }
  for (const stream of ['stdout', 'stderr'] as const) {
    child[stream].setEncoding('utf8').on('data', (text: string) => {
      result[stream] += text
    })
  }
  const counted = once(child, 'close').then(([code]) => {
    if (code !== 0) throw commandFailure(argv, result, at.namespace)
    return JSON.parse(result.stdout) as BlastResult
  })
  counted.catch(() => {}) // whoever waits for it is told, later perhaps
  await Promise.race([counted, once(child.stderr, 'data')]) // it says when its socket is bound
  return { end: () => void child.stdin.end(), result: counted }
}

/** Runs the generator in a namespace to its end. @throws FlanneletteError `host-command` when it fails */
export async function blast(at: Endpoint, words: readonly (string | number)[]): Promise<BlastResult> {
  const argv = [process.execPath, blastProgram(), ...words.map(String)]
  const result = await attempt(argv, { namespace: at.namespace })
  if (result.exitCode !== 0) throw commandFailure(argv, result, at.namespace)
  return JSON.parse(result.stdout) as BlastResult
}

/** The built generator; sources run by a test runner have it below dist/. */
export function blastProgram(): string {
  const built = import.meta.url.endsWith('.ts') ? '../../dist/bench/netns/blast.js' : './blast.js'
  return fileURLToPath(new URL(built, import.meta.url))
}

/**
 * CPU seconds that the machine has worked since boot: what was not idle, waiting or taken by a hypervisor (man 5 proc).
 */
function busySeconds(): number {
  const line = readFileSync('/proc/stat', 'utf8').split('\n')[0] ?? ''
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0] = line.trim().split(/\s+/).slice(1).map(Number)
  const ticks = user + nice + system + irq + softirq
  if (!(ticks > 0)) throw new FlanneletteError('host-command', 'there are no processor times in /proc/stat')
  return ticks / TICKS_PER_SECOND
}
