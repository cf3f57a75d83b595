// One measurement of one overlay: put load on it, say what arrived and what it cost.
import { readFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { FlanneletteError } from '../../src/errors.ts'
import { attempt, commandFailure } from '../../src/host/command.ts'
import { iperf } from '../../src/lab/iperf.ts'
import type { Endpoint } from '../../src/lab/ping.ts'
import type { BlastResult } from './blast.ts'
import type { Load } from './guards.ts'
import type { Sample } from './rounds.ts'

/** UDP payload bytes of a small packet. */
export const SMALL_PACKET_BYTES = 64
const PORT = 5555
/** The receiver starts before the sender and outlives it; it counts from its first packet to its last. */
const RECEIVER_LEAD_MS = 500
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
  const patience = seconds + (2 * RECEIVER_LEAD_MS) / 1000
  const receiver = blast(to, ['receive', to.address, PORT, patience])
  const sender = pause(RECEIVER_LEAD_MS).then(() =>
    blast(from, ['send', to.address, PORT, SMALL_PACKET_BYTES, seconds]),
  )
  const [received] = await Promise.all([receiver, sender])
  return { value: received.packetsPerSecond, moved: received.packets }
}

/** Runs the generator or its counter in a namespace. @throws FlanneletteError `host-command` when it fails */
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
