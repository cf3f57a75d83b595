// Network config: flannel's JSON rules, derived fields, checks, and messages that name field and place.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { formatIpv4, formatIpv6 } from '../../../dataplane/wire/address.ts'
import { formatPrefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { KNOWN_BACKENDS, parseNetworkConfig } from '../../../src/config/network-config.ts'
import { FlanneletteError } from '../../../src/errors.ts'

function parse(config: unknown) {
  return parseNetworkConfig(typeof config === 'string' ? config : JSON.stringify(config))
}

/** The range as people write it. */
function range(config: unknown): string {
  const { subnetLength, subnetMin, subnetMax } = parse(config).ipv4!
  return `/${subnetLength} ${formatIpv4(subnetMin)} ${formatIpv4(subnetMax)}`
}

function refusal(config: unknown): FlanneletteError {
  try {
    parse(config)
  } catch (error) {
    if (error instanceof FlanneletteError) return error
    throw error
  }
  throw new Error(`accepted: ${JSON.stringify(config)}`)
}

describe('defaults', () => {
  test('a /16 gives /24 subnets from the second to the last, also with a lower-case key', () => {
    expect(range({ network: '10.3.0.0/16' })).toBe('/24 10.3.1.0 10.3.255.0')
  })

  test.each([
    ['10.0.0.0/22', '/24 10.0.1.0 10.0.3.0'],
    ['10.244.8.0/24', '/26 10.244.8.64 10.244.8.192'],
    ['10.0.0.0/26', '/28 10.0.0.16 10.0.0.48'],
    ['10.0.0.0/28', '/30 10.0.0.4 10.0.0.12'],
    ['128.0.0.0/2', '/24 128.0.1.0 191.255.255.0'],
  ])('%s', (network, expected) => {
    expect(range({ Network: network })).toBe(expected)
  })

  test('what is given is kept', () => {
    const config = { Network: '10.3.0.0/16', SubnetMin: '10.3.5.0', SubnetMax: '10.3.8.0', SubnetLen: 28 }
    expect(range(config)).toBe('/28 10.3.5.0 10.3.8.0')
  })

  test('an address of 0.0.0.0 counts as not given', () => {
    expect(range({ Network: '10.3.0.0/16', SubnetMin: '0.0.0.0' })).toBe('/24 10.3.1.0 10.3.255.0')
  })

  test('host bits of the network are cleared', () => {
    expect(parse({ Network: '10.5.72.1/16' }).ipv4!.network).toEqual(parsePrefix('10.5.0.0/16'))
  })

  test('a missing backend is udp, and said to be a default', () => {
    const config = parse({ Network: '10.3.0.0/16' })
    expect(config.backendType).toBe('udp')
    expect(config.notices).toEqual([expect.stringContaining('"udp"')])
  })

  test('every backend that flannel knows is known, whatever its case', () => {
    for (const type of KNOWN_BACKENDS) {
      const config = parse({ Network: '10.3.0.0/16', Backend: { Type: type.toUpperCase() } })
      expect([config.backendType, config.notices]).toEqual([type, []])
    }
  })
})

test.each(['0.0.0.0/1', '0.0.0.0/8', '127.0.0.0/8', '127.5.0.0/16', '128.0.0.0/1', '224.0.0.0/4', '240.0.0.0/8'])(
  'network %s, which no pod can have an address of, is refused',
  (network) => {
    expect(refusal({ Network: network })).toMatchObject({ code: 'config-invalid', exitCode: 2 })
    expect(refusal({ Network: network }).message).toContain(`Network ${network}`)
  },
)

describe('JSON as Go reads it', () => {
  test.each(['network', 'Network', 'NETWORK', 'nEtWoRk'])('key %s', (key) => {
    expect(formatPrefix(parse({ [key]: '10.3.0.0/16' }).ipv4!.network)).toBe('10.3.0.0/16')
  })

  test('the last of several equal keys wins, whatever its case', () => {
    const text = '{"Network": "10.1.0.0/16", "network": "10.2.0.0/16", "Backend": {"type": "udp", "Type": "vxlan"}}'
    expect(formatPrefix(parse(text).ipv4!.network)).toBe('10.2.0.0/16')
    expect(parse(text).backendType).toBe('vxlan')
  })

  test('unknown keys are ignored', () => {
    expect(range({ Network: '10.3.0.0/16', Colour: [1, { a: null }] })).toBe('/24 10.3.1.0 10.3.255.0')
  })

  test('null counts as absent for numbers and booleans', () => {
    const config = { Network: '10.3.0.0/16', SubnetLen: null, EnableIPv4: null, EnableIPv6: null }
    expect(range(config)).toBe('/24 10.3.1.0 10.3.255.0')
  })

  test.each([
    ['{"Network": null}', 'Network', 'line 1, column 13'],
    ['{"Network": "10.3.0.0/16", "SubnetMin": null}', 'SubnetMin', 'line 1, column 41'],
    ['{"Network": "10.03.0.0/16"}', 'Network', 'line 1, column 13'],
    ['{"Network": "10.3.0.0"}', 'Network', 'line 1, column 13'],
    ['{"Network": "10.3.0.0/33"}', 'Network', 'line 1, column 13'],
    ['{"Network": "fc00::/48"}', 'Network', 'line 1, column 13'],
    ['{\n  "Network": "10.3.0.0/16",\n  "SubnetLen": "24"\n}', 'SubnetLen', 'line 3, column 16'],
    ['{"Network": "10.3.0.0/16", "SubnetLen": 24.0}', 'SubnetLen', 'line 1, column 41'],
    ['{"Network": "10.3.0.0/16", "SubnetLen": 2.4e1}', 'SubnetLen', 'line 1, column 41'],
    ['{"Network": "10.3.0.0/16", "SubnetLen": -1}', 'SubnetLen', 'line 1, column 41'],
    ['{"Network": "10.3.0.0/16", "EnableIPv4": 1}', 'EnableIPv4', 'line 1, column 42'],
    ['{"Network": "10.3.0.0/16", "Backend": "vxlan"}', 'Backend', 'line 1, column 39'],
    ['{"Network": "10.3.0.0/16", "Backend": {"Type": 1}}', 'Type', 'line 1, column 48'],
    ['["10.3.0.0/16"]', 'network config', 'line 1, column 1'],
  ])('%s is refused by field and place', (text, field, place) => {
    const error = refusal(text)
    expect([error.code, error.exitCode]).toEqual(['config-invalid', 2])
    expect(error.message).toContain(field)
    expect(error.message).toContain(place)
  })

  test.each([
    ['', 'line 1, column 1'],
    ['net: 10.3.0.0/16', 'line 1, column 1'],
    ['{"Network": "10.3.0.0/16",\n}', 'line 2, column 1'],
    ['{"Network": "10.3.0.0/16"} x', 'line 1, column 28'],
    ['{"Network": "10.3.0.0/16"', 'line 1, column 26'],
  ])('%j is no JSON, and the place is named', (text, place) => {
    expect(refusal(text).message).toContain(place)
  })

  test('random text is decoded or refused, never anything else', () => {
    const soup = fc.string({ unit: fc.constantFrom(...'{}[]":, \n', 'Network', '10.3.0.0/16', '1', '\\', 'true', '-') })
    fc.assert(
      fc.property(fc.oneof(fc.string(), soup, fc.json()), (text) => {
        try {
          parseNetworkConfig(text)
        } catch (error) {
          expect(error).toBeInstanceOf(FlanneletteError)
        }
      }),
    )
  })
})

describe('impossible networks are refused', () => {
  test.each([
    ['no network', {}, 'Network'],
    ['everything', { Network: '0.0.0.0/0' }, 'Network'],
    ['a /29', { Network: '10.0.0.0/29' }, 'Network'],
    ['a /31', { Network: '10.0.0.0/31' }, 'Network'],
    ['a /32', { Network: '10.0.0.0/32' }, 'Network'],
    ['a /32 with a length', { Network: '10.0.0.0/32', SubnetLen: 30 }, 'SubnetLen'],
    ['subnets of two addresses', { Network: '10.0.0.0/16', SubnetLen: 31 }, 'SubnetLen'],
    ['fewer than four subnets', { Network: '10.0.0.0/16', SubnetLen: 17 }, 'SubnetLen'],
    ['a subnet larger than the network', { Network: '10.0.0.0/16', SubnetLen: 8 }, 'SubnetLen'],
    ['a first subnet outside', { Network: '10.0.0.0/16', SubnetMin: '10.1.0.0' }, 'SubnetMin'],
    ['a last subnet outside', { Network: '10.0.0.0/16', SubnetMax: '10.1.0.0' }, 'SubnetMax'],
    ['a first subnet off its boundary', { Network: '10.0.0.0/16', SubnetMin: '10.0.1.5' }, 'SubnetMin'],
    ['a last subnet off its boundary', { Network: '10.0.0.0/16', SubnetMax: '10.0.9.5' }, 'SubnetMax'],
    ['an empty range', { Network: '10.0.0.0/16', SubnetMin: '10.0.9.0', SubnetMax: '10.0.8.0' }, 'SubnetMin'],
    ['an unknown backend', { Network: '10.0.0.0/16', Backend: { Type: 'gre' } }, 'Backend.Type'],
    ['a backend without a type', { Network: '10.0.0.0/16', Backend: {} }, 'Backend'],
    ['a null backend', { Network: '10.0.0.0/16', Backend: null }, 'Backend'],
    ['no family', { Network: '10.0.0.0/16', EnableIPv4: false }, 'EnableIPv4'],
  ])('%s', (_, config, field) => {
    const error = refusal(config)
    expect([error.code, error.exitCode]).toEqual(['config-invalid', 2])
    expect(error.message).toContain(field)
    expect(error.remedy).not.toBe('')
  })

  test('an unknown backend is answered with the known ones', () => {
    const error = refusal({ Network: '10.0.0.0/16', Backend: { Type: 'gre' } })
    for (const type of KNOWN_BACKENDS) expect(error.oneLine).toContain(type)
  })

  test('whatever is accepted leaves at least three subnets on their boundaries inside the network', () => {
    const octet = fc.integer({ min: 0, max: 255 })
    const prefix = fc.tuple(octet, octet, octet, octet, fc.integer({ min: 0, max: 32 }))
    fc.assert(
      fc.property(prefix, fc.integer({ min: 0, max: 33 }), ([a, b, c, d, length], subnetLength) => {
        let config: ReturnType<typeof parse>
        try {
          config = parse({ Network: `${a}.${b}.${c}.${d}/${length}`, SubnetLen: subnetLength })
        } catch (error) {
          expect(error).toBeInstanceOf(FlanneletteError)
          return
        }
        const size = 2 ** (32 - config.ipv4!.subnetLength)
        const end = config.ipv4!.network.address + 2 ** (32 - config.ipv4!.network.length)
        expect(config.ipv4!.subnetMin).toBe(config.ipv4!.network.address + size)
        expect(config.ipv4!.subnetMax).toBe(end - size)
        expect(config.ipv4!.subnetMin % size).toBe(0)
        expect((config.ipv4!.subnetMax - config.ipv4!.subnetMin) / size).toBeGreaterThanOrEqual(2)
      }),
    )
  })
})

describe('the IPv6 half', () => {
  const ipv6 = (more: object) => parse({ Network: '10.244.0.0/16', EnableIPv6: true, ...more })
  const ipv6Range = (more: object) => {
    const half = ipv6(more).ipv6
    return half === null ? null : `/${half.subnetLength} ${formatIpv6(half.subnetMin)} ${formatIpv6(half.subnetMax)}`
  }

  test.each([
    ['fc00::/48', '/64 fc00:0:0:1:: fc00:0:0:ffff::'],
    ['fd00:10:244::/62', '/64 fd00:10:244:1:: fd00:10:244:3::'],
    ['fd00:10:244::/63', '/65 fd00:10:244:0:8000:: fd00:10:244:1:8000::'],
    ['fd00::/64', '/66 fd00::4000:0:0:0 fd00::c000:0:0:0'],
    ['fd00::/124', '/126 fd00::4 fd00::c'],
    ['fd00::/8', '/64 fd00:0:0:1:: fdff:ffff:ffff:ffff::'],
  ])('%s has flannel’s defaults', (network, expected) => {
    expect(ipv6Range({ IPv6Network: network })).toBe(expected)
  })

  test('is what it says', () => {
    const given = { IPv6SubnetMin: 'fc00:0:0:1::', IPv6SubnetMax: 'FC00:0:0:F:0:0:0:0', IPv6SubnetLen: 124 }
    expect(ipv6Range({ IPv6Network: 'fc00::1/48', ...given })).toBe('/124 fc00:0:0:1:: fc00:0:0:f::')
  })

  test('is not there without EnableIPv6, whatever else is given', () => {
    expect(parse({ Network: '10.244.0.0/16', IPv6Network: 'fc00::/48' }).ipv6).toBeNull()
  })

  test('an address of :: or null counts as not given', () => {
    const given = { IPv6SubnetMin: '::', IPv6SubnetMax: null }
    expect(ipv6Range({ IPv6Network: 'fc00::/48', ...given })).toBe('/64 fc00:0:0:1:: fc00:0:0:ffff::')
  })

  test.each([
    ['no network', {}, 'IPv6Network'],
    ['everything', { IPv6Network: '::/0' }, 'IPv6Network'],
    ['subnets of two addresses', { IPv6Network: 'fc00::/48', IPv6SubnetLen: 127 }, 'IPv6SubnetLen'],
    ['fewer than four subnets', { IPv6Network: 'fc00::/48', IPv6SubnetLen: 49 }, 'IPv6SubnetLen'],
    ['a /125', { IPv6Network: 'fc00::/125' }, 'IPv6Network'],
    ['a first subnet outside', { IPv6Network: 'fc00::/48', IPv6SubnetMin: 'fc00:0:1::' }, 'IPv6SubnetMin'],
    ['a last subnet outside', { IPv6Network: 'fc00::/48', IPv6SubnetMax: 'fbff::' }, 'IPv6SubnetMax'],
    [
      'an IPv4 address, which is a mapped one',
      { IPv6Network: 'fc00::/48', IPv6SubnetMin: '10.0.0.1' },
      'IPv6SubnetMin',
    ],
    ['a first subnet off its boundary', { IPv6Network: 'fc00::/48', IPv6SubnetMin: 'fc00:0:0:1::1' }, 'IPv6SubnetMin'],
    ['a last subnet off its boundary', { IPv6Network: 'fc00::/48', IPv6SubnetMax: 'fc00:0:0:f::1' }, 'IPv6SubnetMax'],
    [
      'an empty range',
      { IPv6Network: 'fc00::/48', IPv6SubnetMin: 'fc00:0:0:9::', IPv6SubnetMax: 'fc00:0:0:8::' },
      'IPv6SubnetMin',
    ],
    ['an IPv4 network', { IPv6Network: '10.0.0.0/16' }, 'IPv6Network'],
    ['a null network', { IPv6Network: null }, 'IPv6Network'],
    ['link-local addresses', { IPv6Network: 'fe80::/64' }, 'IPv6Network'],
    ['multicast', { IPv6Network: 'ff00::/16' }, 'IPv6Network'],
    ['loopback', { IPv6Network: '::/64' }, 'IPv6Network'],
  ])('with %s is refused by field', (_, more, field) => {
    const error = refusal({ Network: '10.244.0.0/16', EnableIPv6: true, ...more })
    expect([error.code, error.exitCode]).toEqual(['config-invalid', 2])
    expect(error.message).toContain(field)
    expect(error.remedy).not.toBe('')
  })

  test('may be all there is: an IPv4 network is not asked for then, and not used', () => {
    const alone = parse({ EnableIPv4: false, EnableIPv6: true, IPv6Network: 'fc00::/48', Network: '10.0.0.0/29' })
    expect([alone.ipv4, formatPrefix(alone.ipv6!.network)]).toEqual([null, 'fc00::/48'])
  })

  test('is missed where it is all there is, whatever stands before it', () => {
    const error = refusal({ EnableIPv6: true, EnableIPv4: false, Network: '10.244.0.0/16' })
    expect([error.exitCode, error.message]).toEqual([2, expect.stringContaining('IPv6Network')])
  })

  test('is looked at after the IPv4 half', () => {
    expect(refusal({ Network: '10.0.0.0/29', EnableIPv6: true }).message).toContain('Network 10.0.0.0/29')
  })

  test('whatever is accepted leaves at least three subnets on their boundaries inside the network', () => {
    const address = fc.bigInt({ min: 1n << 124n, max: (0xfen << 120n) - 1n })
    fc.assert(
      fc.property(address, fc.integer({ min: 0, max: 128 }), fc.integer({ min: 0, max: 129 }), (start, length, len) => {
        const network = { address: start, length }
        let half: NonNullable<ReturnType<typeof ipv6>['ipv6']>
        try {
          half = ipv6({ IPv6Network: formatPrefix(network), IPv6SubnetLen: len }).ipv6!
        } catch (error) {
          expect(error).toBeInstanceOf(FlanneletteError)
          return
        }
        const size = 1n << BigInt(128 - half.subnetLength)
        expect(half.subnetMin).toBe(half.network.address + size)
        expect(half.subnetMax).toBe(half.network.address + (1n << BigInt(128 - length)) - size)
        expect(half.subnetMin % size).toBe(0n)
        expect((half.subnetMax - half.subnetMin) / size).toBeGreaterThanOrEqual(2n)
      }),
    )
  })
})
