// Throughput between two members of a lab, by iperf3: a one-off server in one namespace, a client in the other.
import { spawn } from 'node:child_process'
import { FlanneletteError } from '../errors.ts'
import { attempt, commandFailure, inNamespace, run } from '../host/command.ts'
import type { AddressFamily, Endpoint } from './ping.ts'
import { checkCount } from './plan.ts'

export interface IperfOptions {
  /** Default 4. */
  readonly family?: AddressFamily
  readonly udp?: boolean
  /** As iperf3 writes it: `100M`; UDP only, there 1 Mbit/s when absent. */
  readonly bitrate?: string
  /** Bytes of a datagram (16 to 65,507), or of a write with TCP (1 to 1,048,576). */
  readonly lengthBytes?: number
  /** 1 to 86,400; default 3. */
  readonly seconds?: number
  /** Parallel streams, 1 to 128; default 1. */
  readonly streams?: number
  /** Port of the server; absent: the first free one from 5201 on. */
  readonly port?: number
  /** Ends both sides when it fires. */
  readonly signal?: AbortSignal
}

export interface IperfResult {
  readonly from: string
  readonly to: string
  readonly protocol: 'tcp' | 'udp'
  readonly seconds: number
  /** What arrived. */
  readonly bitsPerSecond: number
  readonly bytes: number
  /** TCP only. */
  readonly retransmits: number | null
  /** UDP only: datagrams sent, and those that did not arrive. */
  readonly packets: number | null
  readonly lostPackets: number | null
  /**
   * UDP only: how many of the lost ones the way did deliver, only to find the receiver's socket buffer full, because
   * the receiving program did not get the processor in time.
   */
  readonly overflowedPackets: number | null
}

const FIRST_PORT = 5201
/** Measurements towards one member that may run at the same time. */
const PORTS = 20
const SERVER_START_MS = 20_000
const BITRATE = /^\d+(\.\d+)?[kmgt]?$/i

/**
 * @throws FlanneletteError `usage` for an option out of range, `host-command` when a side fails, the signal's reason
 */
export async function iperf(from: Endpoint, to: Endpoint, options: IperfOptions = {}): Promise<IperfResult> {
  checkOptions(options)
  const { port, end } = await startServerOnFreePort(to, options)
  try {
    const overflowsBefore = await socketOverflows(to)
    const summary = summarize(await runClient(from, to, port, options), options.udp === true)
    const overflows = (await socketOverflows(to)) - overflowsBefore
    const overflowedPackets = summary.lostPackets === null ? null : Math.min(overflows, summary.lostPackets)
    return { from: from.name, to: to.name, ...summary, overflowedPackets }
  } catch (error) {
    // What a program says of being ended is not the reason.
    options.signal?.throwIfAborted()
    throw error
  } finally {
    await end()
  }
}

/** The bounds are iperf3's own. */
function checkOptions({ seconds, streams, lengthBytes, bitrate, udp }: IperfOptions): void {
  if (seconds !== undefined) checkCount('--time', seconds, 1, 86_400)
  if (streams !== undefined) checkCount('--streams', streams, 1, 128)
  if (lengthBytes !== undefined) {
    if (udp === true) checkCount('--length', lengthBytes, 16, 65_507)
    else checkCount('--length', lengthBytes, 1, 1_048_576)
  }
  if (bitrate !== undefined && !BITRATE.test(bitrate)) {
    throw new FlanneletteError('usage', `--bitrate ${bitrate} is no rate`, {
      remedy: 'use bits per second such as 500000, 100M or 2.5G',
    })
  }
}

async function runClient(from: Endpoint, to: Endpoint, port: number, options: IperfOptions): Promise<IperfReport> {
  const { signal } = options
  const argv = clientCommand(to.address, port, options)
  const timeoutMs = ((options.seconds ?? 3) + 30) * 1000
  const result = await attempt(argv, { namespace: from.namespace, timeoutMs, signal })
  const report = parseReport(result.stdout)
  if (report !== null && report.error === undefined) return report
  throw commandFailure(argv, { ...result, stderr: report?.error ?? result.stderr }, from.namespace)
}

function clientCommand(address: string, port: number, options: IperfOptions): string[] {
  return [
    ...['iperf3', '-c', address, '-p', String(port), '-J', '-t', String(options.seconds ?? 3)],
    ...['--connect-timeout', '3000'],
    ...(options.udp === true ? ['-u'] : []),
    ...(options.bitrate === undefined ? [] : ['-b', options.bitrate]),
    ...(options.lengthBytes === undefined ? [] : ['-l', String(options.lengthBytes)]),
    ...(options.streams === undefined ? [] : ['-P', String(options.streams)]),
  ]
}

interface Server {
  readonly port: number
  /** Resolves when its port is free again. */
  end(): Promise<void>
}

/** Another measurement towards the same member has its port, until it is through. */
async function startServerOnFreePort(at: Endpoint, { port, signal }: IperfOptions): Promise<Server> {
  for (let candidate = port ?? FIRST_PORT; ; candidate++) {
    signal?.throwIfAborted()
    const started = await startServer(at, candidate, signal)
    if (typeof started !== 'string') return started
    signal?.throwIfAborted()
    const portIsBusy = /address already in use/i.test(started)
    if (portIsBusy && port === undefined && candidate < FIRST_PORT + PORTS - 1) continue
    const where = portIsBusy ? ` on port ${candidate}` : ''
    throw new FlanneletteError('host-command', `iperf3 does not listen in ${at.name}${where}: ${started}`, {
      ...(portIsBusy ? { remedy: 'wait until the other measurement is through' } : {}),
    })
  }
}

/** Starts a server for one client and waits until it listens; why not, when it does not. */
function startServer(at: Endpoint, port: number, signal?: AbortSignal): Promise<Server | string> {
  const argv = inNamespace(at.namespace, ['iperf3', '-s', '-1', '-p', String(port), '--forceflush'])
  const [program = '', ...words] = argv
  const child = spawn(program, words, {
    stdio: ['ignore', 'pipe', 'pipe'],
    killSignal: 'SIGKILL',
    ...(signal === undefined ? {} : { signal }),
  })
  const gone = new Promise<void>((resolve) => child.on('close', () => resolve()))
  const end = (): Promise<void> => {
    child.kill('SIGKILL')
    return gone
  }
  return new Promise((resolve) => {
    let output = ''
    const fail = (why: string) => {
      void end()
      clearTimeout(limit)
      resolve(why)
    }
    const limit = setTimeout(() => fail('it took too long to start'), SERVER_START_MS)
    const onOutput = (text: Buffer) => {
      output += text.toString('utf8')
      if (!output.includes('Server listening')) return
      clearTimeout(limit)
      resolve({ port, end })
    }
    child.stdout.on('data', onOutput)
    child.stderr.on('data', onOutput)
    child.on('error', (error) => fail(error.message))
    child.on('close', () => fail(serverReason(output)))
  })
}

/** What iperf3 says of a failure stands in the middle of its output, behind `error - `. */
export function serverReason(output: string): string {
  const lines = output.trim().split('\n')
  return /error - (.*)/.exec(output)?.[1] ?? (lines.at(-1) || 'it ended')
}

/** Datagrams that found a full socket buffer in this namespace so far. */
async function socketOverflows(at: Endpoint): Promise<number> {
  const where = { namespace: at.namespace }
  const [ipv4, ipv6] = await Promise.all([
    run(['cat', '/proc/net/snmp'], where),
    attempt(['cat', '/proc/net/snmp6'], where),
  ])
  return parseOverflows(ipv4) + Number(/^Udp6RcvbufErrors\s+(\d+)$/m.exec(ipv6.stdout)?.[1] ?? 0)
}

/** `RcvbufErrors` of /proc/net/snmp: one line of names, then one of numbers, for each protocol. */
export function parseOverflows(snmp: string): number {
  const [names = '', values = ''] = snmp.split('\n').filter((line) => line.startsWith('Udp:'))
  const column = names.split(' ').indexOf('RcvbufErrors')
  return Number(values.split(' ')[column] ?? 0)
}

interface IperfSum {
  readonly seconds?: number
  readonly bytes?: number
  readonly bits_per_second?: number
  readonly retransmits?: number
  readonly packets?: number
  readonly lost_packets?: number
}

/** What we read of `iperf3 -J`. */
export interface IperfReport {
  readonly error?: string
  readonly end?: { readonly sum?: IperfSum; readonly sum_sent?: IperfSum; readonly sum_received?: IperfSum }
}

/** What `iperf3 --json` wrote; `null` for anything that is no JSON, as its words when it cannot start. */
export function parseReport(output: string): IperfReport | null {
  try {
    return JSON.parse(output) as IperfReport
  } catch {
    return null
  }
}

/**
 * The receiver's account. For UDP `sum` holds the receiver's losses beside the sender's rate, so the rate is cut by
 * them.
 */
export function summarize(report: IperfReport, udp: boolean): Omit<IperfResult, 'from' | 'to' | 'overflowedPackets'> {
  const { sum, sum_sent: sent, sum_received: received } = report.end ?? {}
  if (!udp) {
    return {
      protocol: 'tcp',
      seconds: received?.seconds ?? 0,
      bitsPerSecond: received?.bits_per_second ?? 0,
      bytes: received?.bytes ?? 0,
      retransmits: sent?.retransmits ?? null,
      packets: null,
      lostPackets: null,
    }
  }
  const packets = sum?.packets ?? 0
  const lostPackets = sum?.lost_packets ?? 0
  const arrived = packets === 0 ? 0 : (packets - lostPackets) / packets
  return {
    protocol: 'udp',
    seconds: sum?.seconds ?? 0,
    bitsPerSecond: (sum?.bits_per_second ?? 0) * arrived,
    bytes: Math.round((sum?.bytes ?? 0) * arrived),
    retransmits: null,
    packets,
    lostPackets,
  }
}
