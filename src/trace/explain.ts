// Words for steps. The engine emits data; this is the only place that turns it into sentences.
import {
  type ForwardingEntry,
  formatAddress,
  formatEntry,
  formatMac,
  gsoTypeName,
  STEPS,
  type Step,
} from '../../dataplane/index.ts'
import { counted } from '../counted.ts'

const ECN_NAMES = ['Not-ECT', 'ECT(1)', 'ECT(0)', 'CE'] as const

/** `3 lookup   10.244.2.0/24 → 192.0.2.2 …`: number in its direction's flow, name, what happened. */
export function explainStep(step: Step): string {
  const { number } = STEPS[step.kind]
  return `${number === 0 ? ' ' : number} ${step.kind.padEnd(12)} ${sentenceFor(step)}`
}

function sentenceFor(step: Step): string {
  switch (step.kind) {
    case 'tun-read':
      return `${step.length} bytes from the TUN${gsoText(step.gsoType, step.gsoSize)}${step.needsChecksum ? ', checksum open' : ''}`
    case 'lookup':
      return step.entry === null
        ? `no lease covers ${formatAddress(step.destination)} (table generation ${step.generation})`
        : `${formatAddress(step.destination)} is behind ${vtepText(step.entry)} (table generation ${step.generation})`
    case 'fit':
      return `${step.length} bytes, the tunnel takes ${step.mtuBytes}`
    case 'segment':
      return `piece ${step.index + 1}: ${step.headerLength + step.payloadLength} bytes`
    case 'checksum':
      return `transport checksum ${step.verdict}`
    case 'encap':
      return `${step.headerLength} bytes of tunnel header in front, outer ECN ${ecnText(step.outerTos)}`
    case 'send':
      return `${counted(step.packets, 'packet')}, ${step.bytes} bytes to ${endpoint(step)}${outcome(step.errno)}`
    default:
      return inboundSentence(step)
  }
}

type InboundStep = Exclude<Step, { kind: 'tun-read' | 'lookup' | 'fit' | 'segment' | 'checksum' | 'encap' | 'send' }>

function inboundSentence(step: InboundStep): string {
  switch (step.kind) {
    case 'receive':
      return `${step.length} bytes from ${endpoint(step)}${
        step.segmentSize > 0 ? `, a train of ${step.segmentSize} bytes each` : ''
      }`
    case 'decap':
      return `tunnel header is ours and for us: ${step.length} bytes inside`
    case 'source-check':
      return step.entry === null
        ? `no lease covers the inner source ${formatAddress(step.source)}`
        : `inner source ${formatAddress(step.source)} lies in ${vtepText(step.entry)}`
    case 'ecn':
      return `outer ${ecnText(step.outer)}, inner ${ecnText(step.innerBefore)} → ${ecnText(step.inner)}`
    case 'merge':
      return step.index === 0 ? 'opens a super-packet' : `joins it as number ${step.index + 1}`
    case 'tun-write':
      return `${counted(step.packets, 'packet')} into the TUN${gsoText(step.gsoType, step.gsoSize)}${outcome(step.errno)}`
    case 'drop':
      return `dropped: ${step.reason}`
    case 'icmp-answer':
      return `${step.suppressed ? 'would tell' : 'told'} ${formatAddress(step.to)}: ICMP type ${step.type} code ${step.code}`
  }
}

function vtepText(entry: ForwardingEntry): string {
  return `${formatEntry(entry)} (VTEP ${formatMac(entry.vtep.mac)})`
}

function gsoText(gsoType: number, gsoSize: number): string {
  return gsoType === 0 ? '' : `, a ${gsoTypeName(gsoType)} super-packet to be cut at ${gsoSize}`
}

function ecnText(tos: number): string {
  return ECN_NAMES[tos & 3] ?? 'Not-ECT'
}

function outcome(errno: number): string {
  return errno === 0 ? '' : `: failed, errno ${errno}`
}

/** `192.168.56.12:8472`, `[fd00::12]:8472`. */
function endpoint({ address, port }: { readonly address: number | bigint; readonly port: number }): string {
  const text = formatAddress(address)
  return typeof address === 'number' ? `${text}:${port}` : `[${text}]:${port}`
}
