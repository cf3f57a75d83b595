// The extension's keys, and what a check of the config says of them.
import { expect, test } from 'vitest'
import { checkNetworkConfig } from '../../../src/config/check-network-config.ts'
import { parseNetworkConfig } from '../../../src/config/network-config.ts'
import { tunnelBackend } from '../../../src/config/tunnel-backend.ts'

const config = (backend: Record<string, unknown>, more: Record<string, unknown> = {}) =>
  JSON.stringify({ Network: '10.5.0.0/16', Backend: { Type: 'extension', ...backend }, ...more })
const backendOf = (text: string) => tunnelBackend(parseNetworkConfig(text))

test('commands are read by flannel’s names; one that is missing or blank is none', () => {
  expect(
    backendOf(config({ PreStartupCommand: ' make key ', subnetaddcommand: 'up', PostStartupCommand: ' ' })),
  ).toEqual({
    encapsulation: 'none',
    leaseType: 'extension',
    underlay: 'ipv4',
    deviceName: '',
    ipv6DeviceName: null,
    vni: 0,
    port: 0,
    mtuBytes: null,
    plain: {
      type: 'extension',
      commands: { preStartup: 'make key', postStartup: null, subnetAdd: 'up', subnetRemove: null, shell: false },
    },
    notices: [],
  })
})

test('alloc is a lease without a type, a device or a port', () => {
  const alloc = backendOf(JSON.stringify({ Network: '10.5.0.0/16', Backend: { Type: 'alloc' } }))
  expect(alloc).toMatchObject({
    encapsulation: 'none',
    leaseType: '',
    deviceName: '',
    port: 0,
    plain: { type: 'alloc' },
  })
})

test.each([
  ['alloc', {}, 'ipv4'],
  ['alloc', { EnableIPv4: false }, 'ipv6'],
  ['extension', {}, 'dual'],
  ['extension', { EnableIPv4: false }, 'ipv6'],
])('%s carries whatever families the config has (%j); its lease names addresses of %s', (Type, more, underlay) => {
  const text = config({ Type }, { EnableIPv6: true, IPv6Network: 'fd00:5::/48', ...more })
  expect(checkNetworkConfig(text).findings).toEqual([])
  expect(backendOf(text)).toMatchObject({ underlay, deviceName: '', ipv6DeviceName: null })
})

test.each([
  ['a "b c"', 'quotes'],
  ["a 'b'", 'quotes'],
  ['a; b', '";"'],
  ['a && b', '"&&"'],
  ['a | b', '"|"'],
  ['a > b', '"<" or ">"'],
  ['a $(b)', 'a command inside the command'],
  ['export A=b', 'a word of the shell'],
  ['A=b c', 'an assignment'],
])('a check of the config says that %j would be plain characters (%s)', (command, what) => {
  const [finding, ...more] = checkNetworkConfig(config({ SubnetAddCommand: command })).findings
  expect(more).toEqual([])
  expect(finding).toMatchObject({ severity: 'warning', field: 'Backend.SubnetAddCommand', line: 1 })
  expect(finding?.message).toContain(`holds ${what}`)
  expect(finding?.message).toContain('set Backend.Shell to true')
})

test('with a shell, and for plain words with variables, nothing is said', () => {
  const texts = [
    config({ SubnetAddCommand: 'a; b | c', Shell: true }),
    config({ SubnetAddCommand: `ip route replace $SUBNET via \${PUBLIC_IP} dev eth0` }),
  ]
  for (const text of texts)
    expect(checkNetworkConfig(text)).toMatchObject({ findings: [], derived: { device: 'none' } })
})

test('a key of old samples that nobody reads is named, and the nearest one', () => {
  const [finding] = checkNetworkConfig(config({ PostStartupComand: 'x' })).findings
  expect(finding?.message).toBe('Backend.PostStartupComand is a key that nobody reads: PostStartupCommand is meant?')
  expect(checkNetworkConfig(config({ ShutdownCommand: 'x' })).findings).toHaveLength(1)
})

test('a command that is no string is an error at its place', () => {
  expect(checkNetworkConfig(config({ SubnetAddCommand: ['a'] })).findings).toMatchObject([
    { severity: 'error', field: 'Backend.SubnetAddCommand' },
  ])
})

test.each([
  ['wireguard', /WireGuard or IPsec of their own/],
  ['ipsec', /WireGuard or IPsec of their own/],
  ['ipip', /take "vxlan"/],
  ['tencent-vpc', /take "alloc"/],
])('%s is refused with what to do instead', (Type, remedy) => {
  expect(() => backendOf(config({ Type }))).toThrow(
    expect.objectContaining({
      code: 'config-invalid',
      message: expect.stringContaining(`"${Type}" is not supported`),
      remedy: expect.stringMatching(remedy),
    }),
  )
})
