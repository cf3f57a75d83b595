// Makes docs/wire-formats.md from the field tables and from one golden frame, so that the page cannot fall behind the
// code.
import * as arp from '../../dataplane/wire/arp.ts'
import * as ethernet from '../../dataplane/wire/ethernet.ts'
import type { Field, FieldNote } from '../../dataplane/wire/field.ts'
import * as icmpv4 from '../../dataplane/wire/icmpv4.ts'
import * as icmpv6 from '../../dataplane/wire/icmpv6.ts'
import * as ipv4 from '../../dataplane/wire/ipv4.ts'
import * as ipv6 from '../../dataplane/wire/ipv6.ts'
import * as extension from '../../dataplane/wire/ipv6-extension.ts'
import * as fragment from '../../dataplane/wire/ipv6-fragment.ts'
import { describeLayers, hexDump } from '../../dataplane/wire/layers.ts'
import * as tcp from '../../dataplane/wire/tcp.ts'
import * as udp from '../../dataplane/wire/udp.ts'
import * as virtioNet from '../../dataplane/wire/virtio-net.ts'
import * as vxlan from '../../dataplane/wire/vxlan.ts'
import { GOLDEN_FILES, goldenFrame } from './golden-frames.ts'

interface Section {
  readonly title: string
  readonly file: string
  readonly source: string
  readonly fields: readonly Field[]
  readonly note?: string
}

const OPTIONS = 'Options may follow, up to 40 bytes; `dataplane/wire/options.ts` takes them apart.'
const ICMP = { file: 'icmpv4.ts', source: 'RFC 792' }
const ICMPV6 = { file: 'icmpv6.ts', source: 'RFC 4443' }
const EXTENSIONS =
  'Extension headers may follow, each naming the next; `walkExtensions` in `dataplane/wire/ipv6-extension.ts` passes up to 8.'
const EXTENSION = { file: 'ipv6-extension.ts', source: 'RFC 8200' }

const SECTIONS: readonly Section[] = [
  { title: 'Ethernet', file: 'ethernet.ts', source: 'IEEE 802.3', fields: ethernet.FIELDS },
  { title: 'IPv4', file: 'ipv4.ts', source: 'RFC 791, 2474, 3168', fields: ipv4.FIELDS, note: OPTIONS },
  { title: 'IPv6', file: 'ipv6.ts', source: 'RFC 8200, 2474, 3168, 6437', fields: ipv6.FIELDS, note: EXTENSIONS },
  {
    title: 'IPv6 extension header',
    ...EXTENSION,
    fields: extension.FIELDS,
    note: 'Hop-by-hop and destination options: 6 bytes of options follow, or 6 and a multiple of 8.',
  },
  { title: 'IPv6 routing header', ...EXTENSION, fields: extension.ROUTING_FIELDS },
  { title: 'IPv6 fragment header', file: 'ipv6-fragment.ts', source: 'RFC 8200', fields: fragment.FIELDS },
  { title: 'AH', file: 'ipv6-extension.ts', source: 'RFC 4302', fields: extension.AUTHENTICATION_FIELDS },
  { title: 'UDP', file: 'udp.ts', source: 'RFC 768', fields: udp.FIELDS },
  { title: 'VXLAN', file: 'vxlan.ts', source: 'RFC 7348', fields: vxlan.FIELDS },
  { title: 'TCP', file: 'tcp.ts', source: 'RFC 9293, 3168, 9768', fields: tcp.FIELDS, note: OPTIONS },
  { title: 'ICMP', ...ICMP, fields: icmpv4.FIELDS },
  { title: 'ICMP echo', ...ICMP, fields: icmpv4.ECHO_FIELDS },
  { title: 'ICMP too big', file: 'icmpv4.ts', source: 'RFC 1191', fields: icmpv4.TOO_BIG_FIELDS },
  { title: 'ICMPv6', ...ICMPV6, fields: icmpv6.FIELDS },
  { title: 'ICMPv6 echo', ...ICMPV6, fields: icmpv6.ECHO_FIELDS },
  { title: 'ICMPv6 too big', ...ICMPV6, fields: icmpv6.TOO_BIG_FIELDS },
  {
    title: 'Neighbour solicitation and advertisement',
    file: 'icmpv6.ts',
    source: 'RFC 4861',
    fields: icmpv6.NEIGHBOUR_FIELDS,
  },
  { title: 'ARP', file: 'arp.ts', source: 'RFC 826', fields: arp.FIELDS },
  {
    title: 'virtio-net header',
    file: 'virtio-net.ts',
    source: 'linux/virtio_net.h, VIRTIO 1.2',
    fields: virtioNet.FIELDS,
    note: 'Never on the underlay: it lies between the kernel and us, before each packet of the TUN. Numbers of two bytes are little-endian.',
  },
]

const cell = (text: string) => text.replaceAll('|', '\\|')

function bitsInWords({ bit, bits }: Field): string {
  const first = Math.floor(bit / 8)
  const last = Math.floor((bit + bits - 1) / 8)
  const bytes = first === last ? String(first) : `${first}–${last}`
  return bit % 8 === 0 && bits % 8 === 0 ? bytes : `${bytes}, bit ${bit % 8}`
}

function sectionText({ title, file, source, fields, note }: Section): string {
  const rows = fields.map(
    (field) => `| ${bitsInWords(field)} | ${field.bits} | \`${field.name}\` | ${cell(field.about)} |`,
  )
  const table = ['| byte | bits | field | what it says |', '|---|---|---|---|', ...rows].join('\n')
  const parts = [`## ${title}`, `\`dataplane/wire/${file}\`, after ${source}.`, table]
  return (note === undefined ? parts : [...parts, note]).join('\n\n')
}

/** What the tunnel puts before an inner packet, from the lengths of the headers. */
function overheadText(): string {
  const headers = [
    ['outer IPv4', ipv4.HEADER_LEN],
    ['outer UDP', udp.HEADER_LEN],
    ['VXLAN', vxlan.HEADER_LEN],
    ['inner Ethernet', ethernet.HEADER_LEN],
  ] as const
  const total = headers.reduce((sum, [, bytes]) => sum + bytes, 0)
  const parts = headers.map(([name, bytes]) => `${name} ${bytes}`).join(' + ')
  return [
    '## What the tunnel adds',
    `Before every inner packet: ${parts} = **${total} bytes**. An underlay of MTU 1500 so carries inner packets of ${1500 - total}.`,
  ].join('\n\n')
}

function noteLine(note: FieldNote): string {
  const place = String(note.at).padStart(4)
  return `${place}  ${note.layer.padEnd(9)} ${note.name.padEnd(16)} ${note.value.padEnd(18)} ${note.about}`.trimEnd()
}

function exampleText(): string {
  const frame = goldenFrame('vxlan-udpcsum/icmp-echo-request')
  const provenance = GOLDEN_FILES.get('vxlan-udpcsum')?.provenance
  return [
    '## One ping on the underlay',
    `A golden frame: ${provenance?.captured}, ${provenance?.kernel}. Left the first byte of each field.`,
    ['```', ...hexDump(frame, 0, frame.length), '```'].join('\n'),
    ['```', ...describeLayers(frame, 0, frame.length, 'ethernet').map(noteLine), '```'].join('\n'),
  ].join('\n\n')
}

/** The whole page. */
export function wireFormatsPage(): string {
  const introduction = [
    'Made from the field tables in `dataplane/wire/` by `npm run vitest -- run test/wire-formats-page.test.ts -u`; do not edit it.',
    'A byte is counted from the first of its header, a bit from the most significant of its byte.',
  ].join('\n')
  const parts = ['# Wire formats', introduction, overheadText(), ...SECTIONS.map(sectionText), exampleText()]
  return `${parts.join('\n\n')}\n`
}
