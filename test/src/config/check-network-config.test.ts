// A network config as a person wants it judged: every mistake with its field and place, and what it comes to.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { checkNetworkConfig } from '../../../src/config/check-network-config.ts'
import { parseNetworkConfig } from '../../../src/config/network-config.ts'
import { tunnelBackend } from '../../../src/config/tunnel-backend.ts'
import { cpuMsOf } from '../../support/cpu-time.ts'

/** `3:5 error SubnetLen` for each finding. */
const findingsOf = (text: string) =>
  checkNetworkConfig(text).findings.map(({ line, column, severity, field }) => `${line}:${column} ${severity} ${field}`)
const messagesOf = (text: string) => checkNetworkConfig(text).findings.map(({ message }) => message)

describe('a good config', () => {
  test('says what it comes to', () => {
    const { findings, derived } = checkNetworkConfig('{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}')
    expect(findings).toEqual([])
    expect(derived).toEqual({
      Network: '10.244.0.0/16',
      SubnetLen: '24',
      SubnetMin: '10.244.1.0',
      SubnetMax: '10.244.255.0',
      capacity: '255 nodes, 253 pods each',
      rules: 'iptables',
      backend: 'vxlan',
      VNI: '1',
      port: 'UDP 8472',
      device: 'flannel.1',
      MTU: "the interface's − 50",
    })
  })

  test('with IPv6 has as many nodes as both families have subnets', () => {
    const ipv6 = '"EnableIPv6":true,"IPv6Network":"fd00::/62"'
    const backend = '"Backend":{"Type":"vxlan","IPv6OverIPv4":true,"MTU":1420,"VNI":7,"Port":4789}'
    const { derived } = checkNetworkConfig(`{"Network":"10.0.0.0/8","EnableNFTables":true,${ipv6},${backend}}`)
    expect(derived).toMatchObject({
      IPv6Network: 'fd00::/62',
      IPv6SubnetLen: '64',
      capacity: '3 nodes, 253 pods each',
      rules: 'nftables',
      device: 'flannel.7',
      port: 'UDP 4789',
      MTU: '1420 − 50 = 1370',
    })
  })

  test('without a tunnel has the MTU of the interface', () => {
    const { derived } = checkNetworkConfig('{"Network":"10.244.0.0/16","Backend":{"Type":"host-gw"}}')
    expect(derived).toMatchObject({ backend: 'host-gw', device: 'none', MTU: "the interface's" })
  })

  test('with a tunnel over IPv6 comes to two devices, each with its MTU, or to that one', () => {
    const ipv6 = '"EnableIPv6":true,"IPv6Network":"fd00::/48","Backend":{"Type":"vxlan"}'
    expect(checkNetworkConfig(`{"Network":"10.244.0.0/16",${ipv6}}`).derived).toMatchObject({
      device: 'flannel.1',
      MTU: "the interface's − 50",
      IPv6: "flannel-v6.1, MTU the interface's − 70",
    })
    const { findings, derived } = checkNetworkConfig(`{"EnableIPv4":false,${ipv6}}`)
    expect(findings).toEqual([])
    expect(derived).toMatchObject({ device: 'flannel-v6.1', MTU: "the interface's − 70", capacity: '65535 nodes' })
    expect(derived).not.toHaveProperty('Network')
  })

  test('without a backend is told what that means', () => {
    const { findings, derived } = checkNetworkConfig('{"network":"10.244.0.0/28"}')
    expect(findings).toMatchObject([{ severity: 'warning', message: expect.stringContaining('taking "udp"') }])
    expect(derived).toMatchObject({ backend: 'udp', device: 'flannel0', capacity: '3 nodes, 1 pods each' })
  })
})

describe('every mistake is found, with its place', () => {
  test('of types', () => {
    const lines = [
      '{',
      ' "Network": 5,',
      ' "SubnetLen": "24",',
      ' "Backend": {"Type": "vxlan", "VNI": "x",',
      '  "GBP": 1}',
      '}',
    ]
    expect(findingsOf(lines.join('\n'))).toEqual([
      '2:13 error Network',
      '3:15 error SubnetLen',
      '4:38 error Backend.VNI',
      '5:10 error Backend.GBP',
    ])
  })

  test('of values', () => {
    const lines = [
      '{"Network": "10.244.0.0/16",',
      ' "SubnetMin": "10.245.0.0",',
      ' "SubnetMax": "10.244.1.7",',
      ' "Backend": {"Type": "vxlan",',
      '  "VNI": 0, "Port": 70000,',
      '  "MTU": 100, "GBP": "yes"}}',
    ]
    expect(findingsOf(lines.join('\n'))).toEqual([
      '2:15 error SubnetMin',
      '3:15 error SubnetMax',
      '5:10 error Backend.VNI',
      '5:21 error Backend.Port',
      '6:10 error Backend.MTU',
      '6:22 error Backend.GBP',
    ])
  })

  test.each([
    ['no JSON', '{"Network"', '1:11 error ', /ends here: expected ":"/],
    ['no object', '[]', '1:1 error ', /must be an object/],
    ['no network', '{"Backend":{"Type":"vxlan"}}', '1:1 error Network', /^Network is missing$/],
    ['no type', '{"Network":"10.0.0.0/8","Backend":{}}', '1:35 error Backend', /^Backend has no Type$/],
    [
      'a type of nobody',
      '{"Network":"10.0.0.0/8","Backend":{"Type":"vlan"}}',
      '1:43 error Backend.Type',
      /"vlan" is unknown/,
    ],
    [
      'one not run',
      '{"Network":"10.0.0.0/8","Backend":{"Type":"ipip"}}',
      '1:43 error Backend.Type',
      /"ipip" is not supp/,
    ],
    [
      'a backend that is a word',
      '{"Network":"10.0.0.0/8","Backend":"vxlan"}',
      '1:35 error Backend',
      /must be an object/,
    ],
    ['a /32', '{"Network":"10.0.0.0/32","Backend":{"Type":"udp"}}', '1:12 error Network', /too small for four subnets/],
    [
      'a length of 31',
      '{"Network":"10.0.0.0/8","SubnetLen":31,"Backend":{"Type":"udp"}}',
      '1:37 error SubnetLen',
      /larger than 30/,
    ],
  ])('%s', (_, text, finding, message) => {
    expect(findingsOf(text)).toEqual([finding])
    expect(messagesOf(text)[0]).toMatch(message)
    expect(checkNetworkConfig(text).derived).toBeNull()
  })
})

describe('of families that are switched off and on', () => {
  const backend = '"Backend":{"Type":"vxlan"}'
  const must = 'error EnableIPv6 must be true where EnableIPv4 is false'
  const missing = 'error IPv6Network is missing'
  const sentencesOf = (text: string) =>
    checkNetworkConfig(text).findings.map(({ severity, message }) => `${severity} ${message}`)

  test.each<[string, string[]]>([
    [`{"EnableIPv4":false,${backend}}`, [must, missing]],
    [`{"EnableIPv4":false,"EnableIPv6":false,${backend}}`, [must, missing]],
    [`{"EnableIPv4":false,"EnableIPv6":true,${backend}}`, [missing]],
    [`{"EnableIPv4":false,"IPv6Network":"fd00::/48",${backend}}`, [must]],
    [`{"EnableIPv4":false,"IPv6Network":"fd00::/48","Network":"10.244.0.0/16",${backend}}`, [must]],
    [
      `{"EnableIPv4":false,"IPv6Network":"fd00::/127",${backend}}`,
      [must, 'error IPv6Network fd00::/127 is too small for four subnets'],
    ],
    [
      `{"EnableIPv4":false,"Network":"10.244.0.0/16",${backend}}`,
      ['error EnableIPv4 is false and EnableIPv6 is not true: pods would have no addresses'],
    ],
    [
      '{"EnableIPv4":false}',
      [must, missing, `error Backend is missing, and flannel's default "udp" carries IPv4 only`],
    ],
    [
      '{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00::/48","Backend":{"Type":"udp"}}',
      ['error EnableIPv6 does not go with this Backend: "udp" carries IPv4 only'],
    ],
    [
      `{"EnableIPv4":false,"EnableIPv6":"yes","IPv6Network":"fd00::/48",${backend}}`,
      ['error EnableIPv6 must be true or false'],
    ],
    [
      `{"EnableIPv4":"no","EnableIPv6":true,"IPv6Network":"fd00::/48",${backend}}`,
      ['error EnableIPv4 must be true or false'],
    ],
    [`{"EnableIPv4":"no","Network":"10.244.0.0/16",${backend}}`, ['error EnableIPv4 must be true or false']],
    [`{"Network":"10.244.0.0/16","EnableIPv6":true,${backend}}`, [missing]],
  ])('%s: what is wrong, and nothing that only follows from it', (text, sentences) => {
    expect(sentencesOf(text).sort()).toEqual(sentences.sort())
  })

  test.each([
    ['', 'set EnableIPv6 to true and add an IPv6Network, or leave EnableIPv4 out and add a Network'],
    [',"IPv6Network":"fd00::/48"', 'set EnableIPv6 to true, or leave EnableIPv4 out and add a Network'],
    [',"Network":"10.244.0.0/16"', 'leave EnableIPv4 out, or set EnableIPv6 to true and add an IPv6Network'],
    [',"Network":"10.0.0.0/9","IPv6Network":"fd00::/48"', 'set EnableIPv6 to true, or leave EnableIPv4 out'],
  ])('a start without any of them, with "%s" beside, names all that it takes', (more, remedy) => {
    expect(() => parseNetworkConfig(`{"EnableIPv4":false${more}}`)).toThrow(expect.objectContaining({ remedy }))
  })
})

describe('keys', () => {
  test('that nobody reads are told with what is meant, and are no error', () => {
    const text = '{"Network":"10.0.0.0/8","SubnetLenght":24,"X":1,"Backend":{"Type":"vxlan","Vnii":2}}'
    expect(findingsOf(text)).toEqual(['1:25 warning SubnetLenght', '1:43 warning X', '1:75 warning Backend.Vnii'])
    expect(messagesOf(text)).toEqual([
      'SubnetLenght is a key that nobody reads: SubnetLen is meant?',
      'X is a key that nobody reads',
      'Backend.Vnii is a key that nobody reads: VNI is meant?',
    ])
    expect(checkNetworkConfig(text).derived).not.toBeNull()
  })

  test('by the ten thousand are counted in no time', () => {
    const odd = Array.from({ length: 20_000 }, (_, n) => `"k${n}":1`).join()
    const text = `{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"},${odd}}`
    expect(cpuMsOf(() => checkNetworkConfig(text))).toBeLessThan(6000)
    const { findings, derived } = checkNetworkConfig(text)
    expect([findings.length, findings.at(0)?.message]).toEqual([21, '19980 more keys that nobody reads'])
    expect(derived).not.toBeNull()
  })

  test('of any length and with any character make one line', () => {
    const [key, type] = ['\u001b[2J'.repeat(20_000), '\u202e'.repeat(20_000)]
    const messages = messagesOf(JSON.stringify({ Network: '10.244.0.0/16', [key]: 1, Backend: { Type: type } }))
    expect(messages).toHaveLength(2)
    expect(messages.every((message) => message.length < 200 && !/[\p{Cc}\p{Cf}]/u.test(message))).toBe(true)
  })

  test('that stand there twice, in whatever case, are told', () => {
    const text = '{"Network":"10.0.0.0/8","network":"10.1.0.0/16","Backend":{"Type":"vxlan"}}'
    expect(findingsOf(text)).toEqual(['1:2 warning Network'])
    expect(checkNetworkConfig(text).derived?.Network).toBe('10.1.0.0/16')
  })

  test('without effect are told', () => {
    const text = '{"Network":"10.0.0.0/8","Backend":{"Type":"vxlan","Learning":true}}'
    expect(findingsOf(text)).toEqual(['1:62 warning Backend.Learning'])
  })
})

test('a config is good here exactly when a node would start with it', () => {
  const scalar = fc.constantFrom<unknown>(
    true,
    false,
    null,
    0,
    1,
    24,
    30,
    31,
    9000,
    -1,
    'vxlan',
    'udp',
    'ipip',
    '10.0.0.0/16',
  )
  const value = fc.oneof(scalar, fc.constantFrom('10.0.1.0', 'fd00::/48', 'fd00:0:0:1::', '10.0.0.0/29'))
  const keys = [
    'EnableIPv4',
    'EnableIPv6',
    'SubnetLen',
    'SubnetMin',
    'SubnetMax',
    'IPv6Network',
    'IPv6SubnetLen',
    'other',
  ]
  const backendKeys = ['VNI', 'Port', 'MTU', 'GBP', 'IPv6OverIPv4', 'Learning']
  const some = (names: string[]) => fc.dictionary(fc.constantFrom(...names), value, { maxKeys: 3 })
  const backend = fc.record({ Type: fc.constantFrom<unknown>('vxlan', 'udp', 'x', 7), more: some(backendKeys) })
  const config = fc.record({ Network: fc.constantFrom<unknown>('10.0.0.0/16', 7), more: some(keys), backend })
  fc.assert(
    fc.property(config, ({ Network, more, backend: { Type, more: moreBackend } }) => {
      const text = JSON.stringify({ Network, ...more, Backend: { Type, ...moreBackend } })
      let starts = true
      try {
        tunnelBackend(parseNetworkConfig(text))
      } catch {
        starts = false
      }
      const { findings, derived } = checkNetworkConfig(text)
      expect([derived !== null, findings.some(({ severity }) => severity === 'error')]).toEqual([starts, !starts])
    }),
    { numRuns: 500 },
  )
})
