// How the lab's results read, on terminals of every kind.
import { describe, expect, test } from 'vitest'
import { invocation, iperfText, labStatusText, pingMatrix, pingText, suggestions } from '../../../src/cli/lab-output.ts'
import { formatBitrate, mark, shown, table, terminalOf } from '../../../src/cli/table.ts'
import type { LabReport } from '../../../src/lab/lab.ts'
import { LAB_DEFAULTS, planLab } from '../../../src/lab/plan.ts'

const PLAIN = { colour: false, unicode: true }
const ASCII = { colour: false, unicode: false }
const COLOUR = { colour: true, unicode: true }
const result = (from: string, to: string, received: number) => ({
  from,
  to,
  sent: 1,
  received,
  averageMs: received === 0 ? null : 0.25,
})

describe('a table', () => {
  test('lines its columns up and leaves no blanks at the ends', () => {
    const lines = table(
      ['A', 'LONG', 'C'],
      [
        ['x', 'y', ''],
        ['wide', 'z', 'last'],
      ],
    )
    expect(lines).toBe('A     LONG  C\nx     y\nwide  z     last\n')
  })

  test('does not count colour as width', () => {
    const [head, first] = table(['A', 'B'], [[mark(true, COLOUR), 'b']]).split('\n')
    expect(head).toBe('A  B')
    expect(first).toMatch(/m {2}b$/)
  })
})

describe('the ping matrix', () => {
  const results = [result('a', 'b', 1), result('b', 'a', 0)]

  test('has a row for each sender and a column for each receiver', () => {
    expect(pingMatrix(results, PLAIN)).toBe('ms  a  b\na   ·  ✓ 0.25\nb   ✗  ·\n1 of 2 pings answered\n')
  })

  test('does without characters that cannot be shown', () => {
    expect(pingMatrix(results, ASCII)).toBe('ms  a     b\na   -     OK 0.25\nb   FAIL  -\n1 of 2 pings answered\n')
  })

  test('of one pair is a sentence', () => {
    expect(pingText(result('a', 'b', 0), PLAIN)).toBe('✗ a to b: 0 of 1 answered, no answer\n')
  })
})

describe('a terminal', () => {
  test.each([
    [{ LANG: 'C.UTF-8' }, true, { colour: true, unicode: true }],
    [{ LANG: 'C.UTF-8' }, false, { colour: false, unicode: true }],
    [{ LANG: 'en_US.utf8', NO_COLOR: '1' }, true, { colour: false, unicode: true }],
    [{ LC_ALL: 'C', LANG: 'C.UTF-8' }, true, { colour: true, unicode: false }],
    [{ TERM: 'dumb' }, true, { colour: false, unicode: false }],
    [{ FORCE_COLOR: '1' }, false, { colour: true, unicode: false }],
    [{ FORCE_COLOR: '0' }, false, { colour: false, unicode: false }],
  ])('with %o, interactive %s', (env, isTTY, expected) => {
    expect(terminalOf({ isTTY }, env)).toEqual(expected)
  })

  test('without Unicode gets stand-ins, with it the text itself', () => {
    expect(shown('5 µs → x', ASCII)).toBe('5 us -> x')
    expect(shown('5 µs → x', PLAIN)).toBe('5 µs → x')
  })
})

test.each([
  [0, '0.00 bit/s'],
  [999, '999 bit/s'],
  [1000, '1.00 kbit/s'],
  [98_765_432, '98.8 Mbit/s'],
  [9_410_000_000, '9.41 Gbit/s'],
  [999_900_000, '1000 Mbit/s'],
  [12_345_000_000_000, '12345 Gbit/s'],
])('%d bit/s reads %s', (bits, text) => {
  expect(formatBitrate(bits)).toBe(text)
})

test('datagrams that the receiver was too slow for are told from those lost on the way', () => {
  const measured = {
    from: 'a',
    to: 'b',
    protocol: 'udp',
    seconds: 1,
    bitsPerSecond: 1e8,
    bytes: 1,
    retransmits: null,
  } as const
  const udp = { ...measured, packets: 100, lostPackets: 3 }
  expect(iperfText({ ...udp, overflowedPackets: 2 })).toBe(
    'a to b: UDP 100 Mbit/s in 1.0 s, 3 of 100 datagrams lost, 2 of them by a full socket buffer in b\n',
  )
  expect(iperfText({ ...udp, overflowedPackets: 0 })).toMatch(/datagrams lost\n$/)
})

describe('the status of a lab', () => {
  const host = (name: string, counters: Record<string, number>, dataplane = 'userspace') => {
    const place = { name, dataplane, underlayAddress: '192.168.56.11', subnet: '10.244.1.0/24' }
    const driver = dataplane === 'kernel' ? 'kernel' : 'plain'
    return {
      ...place,
      ...{ alive: true, daemonPid: 7, status: { state: 'ready', dataplane, driver, peers: [], counters } },
    } as never
  }
  const text = (...hosts: never[]) =>
    labStatusText({ name: 'lab', options: LAB_DEFAULTS, hosts, pods: [], faults: [] }, PLAIN)

  test('says which dataplane a host has chosen, and why', () => {
    const status = { state: 'ready', dataplane: 'userspace', driver: 'offload', peers: [], counters: {} }
    const why = 'auto: this kernel has no vxlan devices'
    const chooser = { ...(host('host2', {}) as object), dataplane: 'auto', status: { ...status, dataplaneWhy: why } }
    const told = text(host('host1', {}), chooser as never)
    expect(told).toMatch(/^host2 +userspace +offload /m)
    expect(told).toContain('\n\nhost2: userspace (auto: this kernel has no vxlan devices)\n')
    expect(text(host('host1', {}))).not.toContain('host1:')
  })

  test('lists why packets were dropped, most frequent first', () => {
    const drops = { 'outbound.dropped.no-route': 2, 'inbound.dropped.too-big': 0, 'outbound.dropped-bytes.no-route': 9 }
    const lines = text(host('host1', drops), host('host2', { 'inbound.dropped.vni-unknown': 12 })).split('\n')
    const start = lines.findIndex((line) => line.startsWith('DROPPED'))
    expect(lines.slice(start, start + 4)).toEqual([
      'DROPPED  ON     WAY       REASON',
      '12       host2  inbound   vni-unknown',
      '2        host1  outbound  no-route',
      '',
    ])
  })

  test('names the driver, and no number where nobody counts drops', () => {
    const lines = text(host('host1', { 'inbound.lost.rx-queue-full': 3 }), host('host2', {}, 'kernel')).split('\n')
    expect(lines.slice(0, 3).map((line) => line.split(/ {2,}/))).toEqual([
      ['HOST', 'DATAPLANE', 'DRIVER', 'DAEMON', 'UNDERLAY', 'SUBNET', 'PEERS', 'DROPPED'],
      ['host1', 'userspace', 'plain', '✓ ready, pid 7', '192.168.56.11', '10.244.1.0/24', '0', '3'],
      ['host2', 'kernel', '-', '✓ ready, pid 7', '192.168.56.11', '10.244.1.0/24', '0', '-'],
    ])
  })

  test('has no such list when nothing was dropped', () => {
    expect(text(host('host1', { 'outbound.dropped.no-route': 0 }))).not.toMatch(/REASON/)
  })
})

describe('suggestions', () => {
  const report = (name: string): LabReport => {
    const options = { ...LAB_DEFAULTS, name }
    const pods = planLab(options).pods.map((pod) => ({ ...pod, address: '10.244.3.3', ipv6Address: null }))
    return { name, options, hosts: [], pods, faults: [] }
  }

  test('can be pasted', () => {
    expect(suggestions(report('lab'), 'flannelette').split('\n')).toEqual(
      expect.arrayContaining([
        '  flannelette lab iperf pod1.1 pod3.2',
        '  flannelette lab exec pod1.1 -- ping -c 3 10.244.3.3',
      ]),
    )
  })

  test('name the lab where it is not the usual one, before the words of a program', () => {
    expect(suggestions(report('demo'), 'flannelette').split('\n')).toEqual(
      expect.arrayContaining([
        '  flannelette lab heal --name demo',
        '  flannelette lab exec pod1.1 --name demo -- ping -c 3 10.244.3.3',
      ]),
    )
  })

  test('call the program as it was called', () => {
    expect(invocation('/usr/bin/flannelette', '/home')).toBe('flannelette')
    expect(invocation('/src/f/dist/src/main.js', '/src/f')).toBe('node dist/src/main.js')
    expect(invocation('/src/f/dist/src/main.js', '/home')).toBe('node /src/f/dist/src/main.js')
  })
})
