// The tunnel backends' own options: defaults, ranges, and clear words for what this version does not do.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { parseNetworkConfig } from '../../../src/config/network-config.ts'
import { tunnelBackend, vxlanDeviceName, vxlanIpv6DeviceName } from '../../../src/config/tunnel-backend.ts'
import { FlanneletteError } from '../../../src/errors.ts'

function backendOf(backend: object) {
  return tunnelBackend(parseNetworkConfig(JSON.stringify({ Network: '10.244.0.0/16', Backend: backend })))
}

test('defaults are those of flannel on Linux', () => {
  expect(backendOf({ Type: 'vxlan' })).toEqual({
    encapsulation: 'vxlan',
    leaseType: 'vxlan',
    underlay: 'ipv4',
    deviceName: 'flannel.1',
    ipv6DeviceName: null,
    vni: 1,
    port: 8472,
    mtuBytes: null,
    directRouting: false,
    groupPolicy: false,
    learning: false,
    notices: [],
  })
})

test('a port or an MTU of 0 is the default', () => {
  expect(backendOf({ Type: 'vxlan', Port: 0, MTU: 0 })).toMatchObject({ port: 8472, mtuBytes: null })
})

test('VNI, port and MTU come from the config', () => {
  const backend = { Type: 'VXLAN', vni: 0x010203, port: 4789, mtu: 1420 }
  expect(backendOf(backend)).toMatchObject({ vni: 0x010203, port: 4789, mtuBytes: 1420 })
})

test.each([1, 16777215])('VNI %i is accepted', (vni) => {
  expect(backendOf({ Type: 'vxlan', VNI: vni }).vni).toBe(vni)
})

test.each([
  ['VNI', 0],
  ['VNI', -1],
  ['VNI', 16777216],
  ['VNI', '1'],
  ['Port', 65536],
  ['Port', -1],
  ['MTU', 65536],
  ['MTU', 625],
  ['MTU', -1],
])('%s %j is refused by name', (field, value) => {
  expect(() => backendOf({ Type: 'vxlan', [field]: value })).toThrow(
    expect.objectContaining({ code: 'config-invalid', exitCode: 2, message: expect.stringContaining(field) }),
  )
})

test.each([
  ['through a tunnel over IPv6', {}, 1350],
  ['through the one over IPv4', { IPv6OverIPv4: true }, 1330],
])('with IPv6 %s an MTU leaves it the 1280 bytes that it needs', (_, keys, least) => {
  const ipv6 = { EnableIPv6: true, IPv6Network: 'fd00:10:244::/48' }
  const withMtu = (MTU: number) => {
    const Backend = { Type: 'vxlan', MTU, ...keys }
    return tunnelBackend(parseNetworkConfig(JSON.stringify({ Network: '10.244.0.0/16', ...ipv6, Backend })))
  }
  expect(withMtu(least).mtuBytes).toBe(least)
  expect(() => withMtu(least - 1)).toThrow(
    expect.objectContaining({
      exitCode: 2,
      message: expect.stringContaining(`MTU must be the underlay's MTU, ${least} to`),
    }),
  )
})

test.each(['GBP', 'Learning'])('%s is accepted, with a notice of what it needs', (field) => {
  expect(backendOf({ Type: 'vxlan', [field]: true }).notices).toEqual([expect.stringContaining(field)])
})

test.each([true, false])('DirectRouting %s is taken over without a word', (DirectRouting) => {
  expect(backendOf({ Type: 'vxlan', DirectRouting })).toMatchObject({ directRouting: DirectRouting, notices: [] })
})

test('host-gw has a type in its leases, and neither device nor port', () => {
  const nothing = { encapsulation: 'none', deviceName: '', vni: 0, port: 0, mtuBytes: null, notices: [] }
  const plain = { type: 'host-gw' }
  expect(backendOf({ Type: 'host-gw' })).toMatchObject({ ...nothing, leaseType: 'host-gw', plain, underlay: 'ipv4' })
})

test('marks and learning are passed on to whoever makes the device', () => {
  expect(backendOf({ Type: 'vxlan', GBP: true, Learning: true })).toMatchObject({ groupPolicy: true, learning: true })
})

test('options of other systems are ignored', () => {
  expect(backendOf({ Type: 'vxlan', MacPrefix: '0E-2A', Name: 'x' }).notices).toEqual([])
})

test.each(['ipip', 'wireguard'])('backend %s is said to be unsupported, with the way out', (type) => {
  expect(() => backendOf({ Type: type })).toThrow(
    expect.objectContaining({ exitCode: 2, oneLine: expect.stringMatching(new RegExp(`"${type}".*vxlan`)) }),
  )
})

test('device names fit into what Linux allows, for every VNI', () => {
  expect(vxlanDeviceName(1)).toBe('flannel.1')
  for (const vni of [1, 9_999_999, 10_000_000, 16_777_215]) expect(vxlanDeviceName(vni).length).toBeLessThan(16)
})

test('plain UDP has a port, the device flannel0 and no type in its leases', () => {
  const expected = {
    ...{ encapsulation: 'udp', leaseType: '', underlay: 'ipv4', deviceName: 'flannel0', ipv6DeviceName: null },
    ...{ vni: 0, mtuBytes: null, notices: [] },
  }
  expect(backendOf({ Type: 'udp' })).toEqual({ ...expected, port: 8285 })
  expect(backendOf({ Type: 'udp', Port: 9000 })).toEqual({ ...expected, port: 9000 })
  const none = tunnelBackend(parseNetworkConfig('{"Network": "10.244.0.0/16"}'))
  expect(none).toMatchObject({ encapsulation: 'udp', port: 8285 })
})

const dual = (backend: object) => {
  const config = { Network: '10.244.0.0/16', EnableIPv6: true, IPv6Network: 'fd00::/48', Backend: backend }
  return tunnelBackend(parseNetworkConfig(JSON.stringify(config)))
}

test('IPv6 rides through the IPv4 tunnel when the config says so, by a key in any case', () => {
  expect(dual({ Type: 'vxlan', IPv6OverIPv4: true })).toEqual(backendOf({ Type: 'vxlan' }))
  expect(dual({ Type: 'vxlan', ipv6overipv4: true }).notices).toEqual([])
})

test.each([{ Type: 'vxlan' }, { Type: 'vxlan', IPv6OverIPv4: false }, { Type: 'vxlan', IPv6OverIPv4: null }])(
  'IPv6 with %j has a tunnel and a device of its own, as in flannel',
  (backend) => {
    const names = { underlay: 'dual', deviceName: 'flannel.1', ipv6DeviceName: 'flannel-v6.1' }
    expect(dual(backend)).toEqual({ ...backendOf({ Type: 'vxlan' }), ...names })
  },
)

const alone = (backend: object) => {
  const config = { EnableIPv4: false, EnableIPv6: true, IPv6Network: 'fd00::/48', Backend: backend }
  return tunnelBackend(parseNetworkConfig(JSON.stringify(config)))
}

test('IPv6 alone has that device only', () => {
  const names = { underlay: 'ipv6', deviceName: 'flannel-v6.7', ipv6DeviceName: null }
  expect(alone({ Type: 'vxlan', VNI: 7 })).toEqual({ ...backendOf({ Type: 'vxlan', VNI: 7 }), ...names })
})

test('IPv6 cannot ride over an IPv4 that is switched off', () => {
  expect(() => alone({ Type: 'vxlan', IPv6OverIPv4: true })).toThrow(/IPv6OverIPv4 is true, but EnableIPv4 is false/)
})

test.each([{ Type: 'udp' }, { Type: 'udp', IPv6OverIPv4: true }])('IPv6 alone with %j is refused', (backend) => {
  expect(() => alone(backend)).toThrow(/"udp" carries IPv4 only/)
})

test('every VNI gives a name of the IPv6 device that Linux takes, and no two the same one', () => {
  const names = [1, 9999, 10_000, 0x9999, 16_777_215].map(vxlanIpv6DeviceName)
  expect(names).toEqual(['flannel-v6.1', 'flannel-v6.9999', 'flan-v6.x2710', 'flan-v6.x9999', 'flan-v6.xffffff'])
  for (const name of names) expect(name.length).toBeLessThan(16)
})

test('the key must be true or false', () => {
  expect(() => dual({ Type: 'vxlan', IPv6OverIPv4: 'yes' })).toThrow(/IPv6OverIPv4 must be true or false/)
})

test('plain UDP carries no IPv6, whatever is said', () => {
  expect(() => dual({ Type: 'udp', IPv6OverIPv4: true })).toThrow(
    expect.objectContaining({ code: 'config-invalid', message: expect.stringContaining('"udp" carries IPv4 only') }),
  )
})

test('the key without EnableIPv6 is said to have no effect', () => {
  expect(backendOf({ Type: 'vxlan', IPv6OverIPv4: true }).notices).toEqual([expect.stringContaining('EnableIPv6')])
})

test('random options are taken within their ranges or refused, never anything else', () => {
  const keys = ['VNI', 'Port', 'MTU', 'GBP', 'Learning', 'DirectRouting', 'VTEPMAC', 'IPv6OverIPv4', 'vni', 'port']
  const options = fc.dictionary(
    fc.constantFrom(...keys),
    fc.oneof(fc.jsonValue(), fc.integer({ min: -1, max: 1 << 25 })),
  )
  fc.assert(
    fc.property(options, fc.constantFrom('vxlan', 'udp'), (more, type) => {
      let backend: ReturnType<typeof backendOf>
      try {
        backend = backendOf({ ...more, Type: type })
      } catch (error) {
        expect(error).toBeInstanceOf(FlanneletteError)
        return
      }
      const { vni, port, mtuBytes } = backend
      const whole = [vni, port, mtuBytes ?? 1].every(Number.isInteger)
      expect([whole, vni < 1 << 24, port > 0 && port < 1 << 16, (mtuBytes ?? 0) < 1 << 16]).toEqual([
        true,
        true,
        true,
        true,
      ])
    }),
  )
})
