// ARP: property suite, golden bytes, and what it is not made for.
import fc from 'fast-check'
import { expect, it } from 'vitest'
import * as arp from '../../../dataplane/wire/arp.ts'
import { bytesFrom } from '../../support/hex-bytes.ts'
import { checkWireFormat, fieldValues } from '../../support/wire-properties.ts'

const REQUEST = '0001 0800 06 04 0001 0e5a00000001 0af40100 000000000000 0af40200'

checkWireFormat<arp.ArpPacket>('ARP', {
  fields: arp.FIELDS,
  headerLength: arp.HEADER_LEN,
  parse: arp.parse,
  emit: arp.emit,
  describe: arp.describe,
  valid: fieldValues<arp.ArpPacket>(arp.FIELDS, {
    hardwareType: fc.constant(1),
    protocolType: fc.constant(0x0800),
    hardwareLength: fc.constant(6),
    protocolLength: fc.constant(4),
  }),
  tail: () => 0,
  golden: [
    {
      header: {
        hardwareType: 1,
        protocolType: 0x0800,
        hardwareLength: 6,
        protocolLength: 4,
        operation: arp.OPERATION_REQUEST,
        senderMac: 0x0e5a_0000_0001,
        senderAddress: 0x0af40100,
        targetMac: 0,
        targetAddress: 0x0af40200,
      },
      hex: REQUEST,
    },
  ],
  refused: {
    truncated: REQUEST.slice(0, -2),
    'bad-header-length': REQUEST.replace('06 04', '08 04'),
  },
  getters: [
    { name: 'operation', get: arp.getOperation, of: (packet) => packet.operation },
    { name: 'target address', get: arp.getTargetAddress, of: (packet) => packet.targetAddress },
  ],
  setters: [],
})

it.each([
  ['hardwareType', REQUEST.replace('0001', '0006')],
  ['protocolType', REQUEST.replace('0800', '86dd')],
  ['hardwareLength', REQUEST.replace('06 04', '08 04')],
  ['protocolLength', REQUEST.replace('06 04', '06 10')],
])('ARP about other networks than IPv4 over Ethernet has a problem with %s', (name, hex) => {
  const buf = bytesFrom(hex)
  const problems = arp.describe(buf, 0, buf.length).filter(({ problem }) => problem !== undefined)
  expect(problems.map((note) => note.name)).toEqual([name])
})
