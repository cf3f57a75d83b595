// What iperf3 prints, read back; and what is refused before it is started.
import { describe, expect, test } from 'vitest'
import {
  type IperfOptions,
  iperf,
  parseOverflows,
  parseReport,
  serverReason,
  summarize,
} from '../../../src/lab/iperf.ts'

describe('an iperf3 report', () => {
  test('of TCP is the receiver’s account', () => {
    const report = parseReport(
      JSON.stringify({
        end: {
          sum_sent: { seconds: 2, bytes: 1100, bits_per_second: 4400, retransmits: 7 },
          sum_received: { seconds: 2, bytes: 1000, bits_per_second: 4000 },
        },
      }),
    )
    expect(summarize(report ?? {}, false)).toEqual({
      protocol: 'tcp',
      seconds: 2,
      bitsPerSecond: 4000,
      bytes: 1000,
      retransmits: 7,
      packets: null,
      lostPackets: null,
    })
  })

  test('of UDP counts only what arrived', () => {
    const sum = { seconds: 2, bytes: 1000, bits_per_second: 4000, packets: 10, lost_packets: 1 }
    expect(summarize({ end: { sum } }, true)).toMatchObject({
      bitsPerSecond: 3600,
      bytes: 900,
      packets: 10,
      lostPackets: 1,
    })
  })

  test('that is none is told from one', () => {
    expect(parseReport('iperf3: error - unable to connect')).toBeNull()
    expect(summarize({}, false)).toMatchObject({ bitsPerSecond: 0, bytes: 0 })
  })
})

test('datagrams that found a full socket buffer are counted by the column’s name', () => {
  const snmp =
    'Ip: A B\nIp: 1 2\nUdp: InDatagrams NoPorts RcvbufErrors\nUdp: 10 0 7\nUdpLite: RcvbufErrors\nUdpLite: 9\n'
  expect(parseOverflows(snmp)).toBe(7)
})

describe('before anything is started', () => {
  // A namespace that does not exist: whoever got as far would say so instead.
  const nobody = { name: 'pod1.1', namespace: 'flannelette-none', address: '192.0.2.1' }

  test.each<[IperfOptions, RegExp]>([
    [{ seconds: 0 }, /^--time 0 .*1 to 86400/],
    [{ streams: 0 }, /^--streams 0 .*1 to 128/],
    [{ streams: 129 }, /^--streams 129 /],
    [{ bitrate: 'xyz' }, /^--bitrate xyz .*100M/],
    [{ bitrate: '' }, /^--bitrate /],
    [{ lengthBytes: 0 }, /^--length 0 .*1 to 1048576/],
    [{ lengthBytes: 15, udp: true }, /^--length 15 .*16 to 65507/],
    [{ lengthBytes: 65_508, udp: true }, /^--length 65508 /],
  ])('a measurement with %o is refused', async (options, words) => {
    const refusal = { code: 'usage', oneLine: expect.stringMatching(words) }
    await expect(iperf(nobody, nobody, options)).rejects.toMatchObject(refusal)
  })
})

test('why a server does not listen is found in the middle of what it says', () => {
  const output = 'iperf3: error - unable to start listener: Address already in use\niperf3: exiting\n'
  expect(serverReason(output)).toBe('unable to start listener: Address already in use')
  expect(serverReason('Cannot open network namespace "x"\n')).toBe('Cannot open network namespace "x"')
  expect(serverReason('')).toBe('it ended')
})
