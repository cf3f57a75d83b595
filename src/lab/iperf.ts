// Throughput between two members of a lab, by iperf3: a one-off server in one namespace, a client in the other.
import { spawn } from 'node:child_process'
import { FlanneletteError } from '../errors.ts'
import { attempt, commandFailure, inNamespace, run } from '../host/command.ts'
import type { Endpoint } from './ping.ts'

export interface IperfOptions {
  readonly udp?: boolean
  /** As iperf3 writes it: `100M`; UDP only, there 1 Mbit/s when absent. */
  readonly bitrate?: string
  /** Bytes of a datagram, or of a write with TCP. */
  readonly lengthBytes?: number
  /** Default 3. */
  readonly seconds?: number
  /** Parallel streams; default 1. */
  readonly streams?: number
  /** Port of the server; measurements that run at the same time towards one member need different ones. */
  readonly port?: number
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
   * UDP only: how many of the lost ones the way did deliver, only to find the receiver's socket buffer full, because the
   * receiving program did not get the processor in time.
   */
  readonly overflowedPackets: number | null
}

const DEFAULT_PORT = 5201
const SERVER_START_MS = 5_000

/** @throws FlanneletteError `host-command` when either side fails */
export async function iperf(from: Endpoint, to: Endpoint, options: IperfOptions = {}): Promise<IperfResult> {
  const port = options.port ?? DEFAULT_PORT
  const server = await startServer(to, port)
  try {
    const overflowsBefore = await socketOverflows(to)
    const argv = clientCommand(to.address, port, options)
    const timeoutMs = ((options.seconds ?? 3) + 30) * 1000
    const result = await attempt(argv, { namespace: from.namespace, timeoutMs })
    const report = parseReport(result.stdout)
    if (report === null || report.error !== undefined) {
      const said = report?.error === undefined ? result.stderr : report.error
      throw commandFailure(argv, { ...result, stderr: said }, from.namespace)
    }
    const summary = summarize(report, options.udp === true)
    const overflows = (await socketOverflows(to)) - overflowsBefore
    const overflowedPackets = summary.lostPackets === null ? null : Math.min(overflows, summary.lostPackets)
    return { from: from.name, to: to.name, ...summary, overflowedPackets }
  } finally {
    server.end()
  }
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

/** Starts a server for one client and waits until it listens. */
function startServer(at: Endpoint, port: number): Promise<{ end(): void }> {
  const argv = inNamespace(at.namespace, ['iperf3', '-s', '-1', '-p', String(port), '--forceflush'])
  const [program = '', ...words] = argv
  const child = spawn(program, words, { stdio: ['ignore', 'pipe', 'pipe'] })
  const end = () => child.kill('SIGKILL')
  return new Promise((resolve, reject) => {
    let output = ''
    const fail = (why: string) => {
      end()
      clearTimeout(limit)
      reject(new FlanneletteError('host-command', `iperf3 does not listen in ${at.name}: ${why}`))
    }
    const limit = setTimeout(() => fail('it took too long to start'), SERVER_START_MS)
    const onOutput = (text: Buffer) => {
      output += text.toString('utf8')
      if (!output.includes('Server listening')) return
      clearTimeout(limit)
      resolve({ end })
    }
    child.stdout.on('data', onOutput)
    child.stderr.on('data', onOutput)
    child.on('error', (error) => fail(error.message))
    child.on('exit', () => fail(output.trim().split('\n').at(-1) ?? 'it ended'))
  })
}

/** Datagrams that found a full socket buffer in this namespace so far. */
async function socketOverflows(at: Endpoint): Promise<number> {
  return parseOverflows(await run(['cat', '/proc/net/snmp'], { namespace: at.namespace }))
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

export function parseReport(output: string): IperfReport | null {
  try {
    return JSON.parse(output) as IperfReport
  } catch {
    return null
  }
}

/** The receiver's account. For UDP `sum` holds the receiver's losses beside the sender's rate, so the rate is cut by them. */
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
