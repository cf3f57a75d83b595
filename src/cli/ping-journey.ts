// One ping, followed on both hosts: every step of both engines, host by host, with the tunnelled packet taken apart
// byte by byte.
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { describeLayers, type FieldNote, hexDump, type RecordedStep } from '../../dataplane/index.ts'
import { API_SOCKET } from '../daemon/api-server.ts'
import type { Lab } from '../lab/lab.ts'
import { hostFiles } from '../lab/lab-state.ts'
import { explainStep } from '../trace/explain.ts'
import { openTrace, type TraceClient } from '../trace/trace-client.ts'
import { paint, type Terminal } from './table.ts'

/** Enough for the echoes and their answers, with whatever else the hosts say meanwhile. */
const STEPS = 600
/** The last one is shown: the code of the first ones is still being compiled, and their times would mislead. */
const PINGS = 10
/** The daemons hand their last steps over within this time, milliseconds. */
const SETTLE_MS = 200

export interface Journey {
  readonly text: string
  /** Whether the request was seen on both hosts, from one TUN to the other. */
  readonly complete: boolean
}

interface HostStep {
  readonly host: string
  readonly recorded: RecordedStep
}

/** Pings `to` from `from`, both on hosts with the userspace dataplane, and tells how the last echo request went. */
export async function pingJourney(lab: Lab, from: string, to: string, terminal: Terminal): Promise<Journey> {
  const hosts = [hostOf(lab, from), hostOf(lab, to)]
  const traces: TraceClient[] = []
  try {
    for (const host of hosts) {
      traces.push(await openTrace(join(hostFiles(lab.name, host).stateDirectory, API_SOCKET), STEPS))
    }
    const result = await lab.ping(from, to, { count: PINGS })
    await pause(SETTLE_MS)
    const steps = traces.flatMap((trace, index) => trace.steps.map((recorded) => ({ host: hosts[index]!, recorded })))
    const journey = requestSteps(steps, hosts[0]!)
    const kinds = journey.map((step) => step.recorded.step.kind)
    const complete = result.received === PINGS && kinds.includes('tun-read') && kinds.includes('tun-write')
    return { text: journeyText(journey, terminal) + dissection(journey, terminal), complete }
  } finally {
    for (const trace of traces) trace.close()
  }
}

function hostOf(lab: Lab, pod: string): string {
  return lab.pods.find((candidate) => candidate.name === pod)?.host ?? pod
}

/**
 * Steps of the last echo request, host by host in order of time: those of the last packet that the first host read from
 * its TUN.
 */
function requestSteps(steps: readonly HostStep[], first: string): HostStep[] {
  const sorted = [...steps].sort((a, b) => (a.recorded.timeNs < b.recorded.timeNs ? -1 : 1))
  const read = sorted.findLast(({ host, recorded }) => host === first && recorded.step.kind === 'tun-read')?.recorded
    .step
  if (read?.kind !== 'tun-read') return []
  const own = sorted.filter(({ recorded }) => 'id' in recorded.step && recorded.step.id === read.id)
  // Sends and receives speak of whole messages: the ones that this packet was in.
  const messages = own.flatMap(({ host, recorded: { step } }) => {
    if (step.kind === 'encap') return [`${host} send ${step.message}`]
    return step.kind === 'decap' ? [`${host} receive ${step.datagram}`] : []
  })
  const journey = sorted.filter((step) => own.includes(step) || messages.includes(messageKey(step)))
  // One host after the other: a send is recorded when the call is over, and the other host may have read by then.
  return [...journey.filter(({ host }) => host === first), ...journey.filter(({ host }) => host !== first)]
}

function messageKey({ host, recorded: { step } }: HostStep): string {
  if (step.kind === 'send') return `${host} send ${step.message}`
  return step.kind === 'receive' ? `${host} receive ${step.datagram}` : ''
}

function journeyText(journey: readonly HostStep[], terminal: Terminal): string {
  const start = journey[0]?.recorded.timeNs ?? 0n
  let text = ''
  let host = ''
  for (const step of journey) {
    if (step.host !== host) {
      host = step.host
      text += `${paint('blue', host, terminal)}\n`
    }
    const microseconds = Number(step.recorded.timeNs - start) / 1000
    text += `  ${`+${microseconds.toFixed(0)} µs`.padStart(9)}  ${explainStep(step.recorded.step)}\n`
  }
  return text
}

/** The UDP payload that went over the underlay, layer by layer, then its bytes. */
function dissection(journey: readonly HostStep[], terminal: Terminal): string {
  const sent = journey.find(({ recorded }) => recorded.step.kind === 'receive')?.recorded
  if (sent === undefined) return ''
  const bytes = Buffer.from(sent.snap, 'hex')
  let text = `\n${paint('bold', 'what crossed the underlay, inside UDP', terminal)}\n`
  let layer = ''
  for (const note of describeLayers(bytes, 0, bytes.length, 'vxlan')) {
    text += noteLine(note, note.layer === layer ? '' : note.layer)
    layer = note.layer
  }
  return `${text}\n${hexDump(bytes, 0, bytes.length).join('\n')}\n`
}

function noteLine(note: FieldNote, heading: string): string {
  const problem = note.problem === undefined ? '' : `  ! ${note.problem}`
  return `  ${heading.padEnd(9)} ${note.name.padEnd(15)} ${note.value.padEnd(18)} ${note.about}${problem}\n`
}
