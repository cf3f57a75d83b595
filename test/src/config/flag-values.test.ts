// Where a flag's value comes from, and how flannel's ways of writing flags are understood.
import { describe, expect, test } from 'vitest'
import { FLAGS, variableOf } from '../../../src/config/flag-table.ts'
import {
  type Environment,
  FlagValues,
  goWords,
  shownValues,
  withoutFlagVariables,
} from '../../../src/config/flag-values.ts'

const valuesOf = (given: Readonly<Record<string, readonly string[]>>, environment: Environment = {}) =>
  new FlagValues(new Map(Object.entries(given)), environment)
const settingOf = (values: FlagValues, name: string) => values.settings.find(({ flag }) => flag.name === name)!

/** A value that flag can have and that is not its default. */
const OTHER: Readonly<Record<string, string>> = {
  text: 'other',
  list: 'other',
  integer: '7',
}
const ACCEPTED = FLAGS.filter(({ effect }) => effect !== 'kubernetes')

describe('precedence', () => {
  test.each(ACCEPTED.map((flag) => [flag.name, flag] as const))('of %s: flag, environment, default', (name, flag) => {
    const other = OTHER[flag.kind] ?? flag.choices[1] ?? String(flag.default !== 'true')
    const variable = variableOf('FLANNELLETTE', name)
    const [unset, environment, given] = [
      valuesOf({}),
      valuesOf({}, { [variable]: other }),
      valuesOf({ [name]: [other] }, { [variable]: flag.default }),
    ].map((values) => settingOf(values, name))
    expect([unset!.origin, unset!.source]).toEqual(['default', 'default'])
    expect(unset!.values.map(({ text }) => text)).toEqual(flag.default === '' ? [] : [flag.default])
    expect([environment!.origin, environment!.source, environment!.values[0]!.text]).toEqual([
      'environment',
      variable,
      other,
    ])
    expect([given!.origin, given!.source, given!.values[0]!.text]).toEqual(['flag', `--${name}`, other])
  })

  test('flannel’s variables count for flannel’s flags, and for no others', () => {
    const values = valuesOf({}, { FLANNELD_ETCD_PREFIX: '/x', FLANNELD_V: '4', FLANNELD_WORKERS: '4' })
    expect(['etcd-prefix', 'v', 'workers'].map((name) => values.text(name))).toEqual(['/x', '4', '1'])
    expect(values.notices).toEqual([])
  })

  test('ours wins over flannel’s, with one warning', () => {
    const values = valuesOf({}, { FLANNELD_IFACE: 'eth0', FLANNELLETTE_IFACE: 'eth1' })
    expect(values.text('iface')).toBe('eth1')
    expect(values.notices).toEqual(['FLANNELLETTE_IFACE and FLANNELD_IFACE are both set: FLANNELLETTE_IFACE counts'])
    expect(valuesOf({ iface: ['eth2'] }, { FLANNELD_IFACE: 'a', FLANNELLETTE_IFACE: 'b' }).notices).toEqual([])
  })

  test('an empty variable is as good as none, an empty flag takes the default away', () => {
    expect(valuesOf({}, { FLANNELD_SUBNET_FILE: '' }).text('subnet-file')).toBe('/run/flannel/subnet.env')
    expect(valuesOf({ 'public-ip': [''], iface: ['', 'eth1'] }).list('iface')).toMatchObject([{ text: 'eth1' }])
  })

  test('of a flag given twice the last one counts, a list keeps all; a variable is one element', () => {
    const values = valuesOf({ driver: ['plain', 'raw'], iface: ['eth0', 'eth1'] }, { FLANNELD_IFACE_REGEX: 'a,b' })
    expect(values.list('driver')).toHaveLength(1)
    expect(values.text('driver')).toBe('raw')
    expect(values.list('iface').map(({ text }) => text)).toEqual(['eth0', 'eth1'])
    expect(values.list('iface-regex')).toHaveLength(1)
  })
})

describe('a value that will not do names who said it', () => {
  test.each<[string, Environment, RegExp]>([
    ['a number', { FLANNELD_HEALTHZ_PORT: 'x' }, /^FLANNELD_HEALTHZ_PORT=x is no whole number$/],
    ['a fraction', { FLANNELLETTE_WORKERS: '1.5' }, /^FLANNELLETTE_WORKERS=1\.5 is no whole number$/],
    ['a number too large', { FLANNELLETTE_WORKERS: '17' }, /^FLANNELLETTE_WORKERS=17 is out of range$/],
    ['a truth', { FLANNELD_IP_MASQ: 'yes' }, /^FLANNELD_IP_MASQ=yes is neither true nor false$/],
    ['a choice', { FLANNELLETTE_DRIVER: 'xdp' }, /^FLANNELLETTE_DRIVER=xdp is no choice$/],
    ['a store of Kubernetes', { FLANNELD_KUBE_SUBNET_MGR: 'true' }, /^FLANNELD_KUBE_SUBNET_MGR is for .* Kubernetes/],
    ['a file of Kubernetes', { FLANNELD_NET_CONFIG_PATH: '/x' }, /^FLANNELD_NET_CONFIG_PATH is for .* Kubernetes/],
  ])('%s', (_, environment, message) => {
    expect(() => valuesOf({}, environment)).toThrow(
      expect.objectContaining({ code: 'usage', exitCode: 2, message: expect.stringMatching(message) }),
    )
  })

  test('flags of Kubernetes may say what is the default anyway', () => {
    const given = { 'kube-subnet-mgr': ['0'], 'set-node-network-unavailable': ['true'], 'kube-api-url': [''] }
    expect(() => valuesOf(given)).not.toThrow()
  })
})

test.each(['1', 't', 'T', 'TRUE', 'true', 'True'])('%s is true, as for Go', (text) => {
  expect(valuesOf({ 'ip-masq': [text] }).boolean('ip-masq')).toBe(true)
})

test.each(['0', 'f', 'F', 'FALSE', 'false', 'False'])('%s is false, as for Go', (text) => {
  expect(valuesOf({ 'iptables-forward-rules': [text] }).boolean('iptables-forward-rules')).toBe(false)
})

test('flags without effect and variables that set nothing are told', () => {
  const environment = {
    FLANNELLETTE_IFCAE: 'eth0',
    FLANNELLETTE_SERVICE_HOST: '10.0.0.1',
    FLANNELLETTE_PORT_8472_UDP: 'x',
    FLANNELD_VERSION: 'true',
  }
  expect(valuesOf({ vmodule: ['x=1'] }, environment).notices).toEqual([
    'FLANNELLETTE_IFCAE sets nothing: FLANNELLETTE_IFACE is meant?',
    '--vmodule has no effect',
  ])
})

test('a variable of flannel’s that is nearly a flag is told, whatever else its programs read is not', () => {
  const environment = { FLANNELD_ETCD_ENDPOINT: 'http://a:1', FLANNELD_IFACES: 'eth0', FLANNELD_OPTIONS: '-v=4' }
  expect(valuesOf({}, environment).notices).toEqual([
    'FLANNELD_ETCD_ENDPOINT sets nothing: FLANNELD_ETCD_ENDPOINTS is meant?',
    'FLANNELD_IFACES sets nothing: FLANNELD_IFACE is meant?',
  ])
})

test('passwords are not shown, neither alone nor in a URL nor in a complaint', () => {
  const given = { 'etcd-password': ['hunter2'], 'etcd-endpoints': ['https://u:hunter2@a:1,https://b:2'] }
  const values = valuesOf(given)
  expect(shownValues(settingOf(values, 'etcd-password'))).toEqual(['********'])
  expect(shownValues(settingOf(values, 'etcd-endpoints'))).toEqual(['https://********@a:1,https://b:2'])
  expect(values.text('etcd-password')).toBe('hunter2')
})

describe('flags as Go writes them', () => {
  test.each([
    [['-iface=eth1'], ['--iface=eth1']],
    [['--iface', 'eth1'], ['--iface=eth1']],
    [['-iface', '-odd'], ['--iface=-odd']],
    [['-ip-masq'], ['--ip-masq=true']],
    [
      ['--ip-masq=false', '-v=4'],
      ['--ip-masq=false', '--v=4'],
    ],
    [
      ['-v', '10', '--ip-masq'],
      ['--v=10', '--ip-masq=true'],
    ],
    [
      ['-v', '-ip-masq'],
      ['--v=1', '--ip-masq=true'],
    ],
    [['-etcd-prefix='], ['--etcd-prefix=']],
    [['-log_backtrace_at=a.go:1'], ['--log_backtrace_at=a.go:1']],
    [['-h'], ['-h']],
    [['-ifcae=eth1'], ['--ifcae', 'eth1']],
    [
      ['-o', 'json'],
      ['-o', 'json'],
    ],
    [['-version'], ['--version']],
    [
      ['--', '-iface=eth1'],
      ['--', '-iface=eth1'],
    ],
  ])('%j', (words, canonical) => {
    expect(goWords(words)).toEqual(canonical)
  })

  test('a truth that stands apart is refused, since Go would end all flags there', () => {
    expect(() => goWords(['--ip-masq', 'false'])).toThrow(expect.objectContaining({ remedy: 'write --ip-masq=false' }))
  })
})

test('a daemon of a lab does not inherit variables that were meant for another', () => {
  const environment = { PATH: '/bin', FLANNELD_IFACE: 'eth0', FLANNELLETTE_V: '4', FLANNEL_MTU: '1450' }
  expect(withoutFlagVariables(environment)).toEqual({ PATH: '/bin', FLANNEL_MTU: '1450' })
})
