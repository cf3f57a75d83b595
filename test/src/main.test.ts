// The command line: help, mistakes, exit codes. Every failure is one line.
import { writeFileSync } from 'node:fs'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { runCommand } from '../../src/cli/run.ts'
import type { RunOptions } from '../../src/config/options.ts'
import { main } from '../../src/main.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

async function run(...argv: string[]) {
  const text = { out: '', err: '' }
  const code = await main(argv, {
    out: (written) => {
      text.out += written
    },
    err: (written) => {
      text.err += written
    },
  })
  return { code, ...text }
}

/** The options that a `run` command line leads to. */
function optionsOf(...argv: string[]) {
  return withEnvironment({}, ...argv)
}

async function withEnvironment(
  environment: Readonly<Record<string, string>>,
  ...argv: string[]
): Promise<{ options: RunOptions; code: number }> {
  let options: RunOptions | undefined
  let code = -1
  const command = runCommand(
    async (given) => {
      options = given
      return 7
    },
    (given) => {
      code = given
    },
    environment,
  )
  await command.parseAsync(argv, { from: 'user' })
  return { options: options!, code }
}

const DEFAULTS = {
  store: 'etcd',
  etcd: {
    endpoints: ['http://127.0.0.1:4001', 'http://127.0.0.1:2379'],
    prefix: '/coreos.com/network',
    keyFile: null,
    certFile: null,
    caFile: null,
    username: null,
    password: null,
  },
  ifaces: [],
  ifaceRegexes: [],
  subnetFile: '/run/flannel/subnet.env',
  stateDirectory: '/var/lib/flannelette',
  renewMarginMinutes: 60,
  ipMasq: false,
  ipMasqFullyRandom: true,
  ipMasqExclude: [],
  iptablesResyncSeconds: 5,
  iptablesForwardRules: true,
  blackholeRoute: false,
  healthzIp: '0.0.0.0',
  healthzPort: 0,
  metricsPeers: true,
  dataplane: 'userspace',
  driver: 'offload',
  udpGso: 'auto',
  tunOffload: true,
  outerDf: 'clear',
  sourceCheck: 'strict',
  sourceAllow: [],
  workers: 1,
  sourcePorts: 16,
  udpChecksum: true,
  tunnelFlags: [],
  onExit: 'keep',
  logFormat: 'auto',
  verbose: false,
  notices: [],
}

test('the defaults of run are those of flannel where flannel has them', async () => {
  const { options, code } = await optionsOf()
  expect(code).toBe(7)
  expect(options).toEqual(DEFAULTS)
})

test('every flag of flannel arrives', async () => {
  const { options } = await optionsOf(
    ...['--etcd-endpoints=https://a:1,https://b:2', '--etcd-prefix=/p', '--etcd-keyfile=/k', '--etcd-certfile=/c'],
    ...['--etcd-cafile=/ca', '--etcd-username=u', '--etcd-password=w', '--iface=eth1', '--iface=eth2'],
    ...['--iface-regex=^10', '--iface-can-reach=192.0.2.9', '--public-ip=192.0.2.1', '--subnet-file=/e'],
    ...['--subnet-lease-renew-margin=90', '--ip-masq', '--ip-masq-fully-random-disable', '--iptables-resync=9'],
    ...['--iptables-forward-rules=false', '--ip-blackhole-route', '--healthz-ip=::', '--healthz-port=8081', '--v=4'],
  )
  const { endpoints, ...etcd } = options.etcd
  expect(endpoints).toEqual(['https://a:1', 'https://b:2'])
  expect(Object.values(etcd)).toEqual(['/p', '/k', '/c', '/ca', 'u', 'w'])
  expect(options).toMatchObject({
    ifaces: ['eth1', 'eth2'],
    ifaceRegexes: [/^10/],
    ifaceCanReach: 0xc0000209,
    publicIp: 0xc0000201,
    subnetFile: '/e',
    renewMarginMinutes: 90,
    ipMasq: true,
    ipMasqFullyRandom: false,
    iptablesResyncSeconds: 9,
    iptablesForwardRules: false,
    blackholeRoute: true,
    healthzIp: '::',
    healthzPort: 8081,
    verbose: true,
  })
})

test('every flag of our own arrives', async () => {
  const { options } = await optionsOf(
    ...['--store=file:/s', '--state-dir=/d', '--dataplane=kernel', '--source-check=off', '--udp-checksum=off'],
    ...['--source-allow=10.8.1.1/16', '--source-allow=fd00:8::1/64', '--workers=2', '--source-ports=1'],
    ...['--driver=plain', '--udp-gso=on', '--tun-offload=off', '--on-exit=remove', '--log-format=json', '-v'],
    ...['--metrics-address=:9401', '--metrics-peers=off', '--api-socket=/run/x.sock', '--docker-opts-file=/o'],
  )
  expect(options).toEqual({
    ...DEFAULTS,
    store: 'file:/s',
    stateDirectory: '/d',
    dockerOptsFile: '/o',
    metricsAddress: { host: '127.0.0.1', port: 9401 },
    metricsPeers: false,
    apiSocket: '/run/x.sock',
    dataplane: 'kernel',
    driver: 'plain',
    udpGso: 'on',
    tunOffload: false,
    sourceCheck: 'off',
    sourceAllow: [
      { address: 0x0a080000, length: 16 },
      { address: 0xfd00_0008n << 96n, length: 64 },
    ],
    workers: 2,
    sourcePorts: 1,
    udpChecksum: false,
    tunnelFlags: ['--udp-checksum'],
    onExit: 'remove',
    logFormat: 'json',
    verbose: true,
    notices: expect.any(Array),
  })
})

test('a flag of the other dataplane is told to have no effect, one that was not given is not', async () => {
  const kernel = ['--driver=raw', '--workers=1', '--source-check=strict', '--udp-checksum=off']
  const notices = (await optionsOf('--store=file:/s', '--dataplane=kernel', ...kernel)).options.notices
  expect(notices).toEqual(
    ['--driver', '--source-check', '--workers'].map((flag) => `${flag} has no effect with --dataplane kernel`),
  )
  const environment = { FLANNELLETTE_UDP_CHECKSUM: 'on' }
  const userspace = (await withEnvironment(environment, '--store=file:/s', '--driver=raw')).options.notices
  expect(userspace).toEqual(['FLANNELLETTE_UDP_CHECKSUM has no effect with --dataplane userspace'])
})

test('the environment is read, a flag wins over it', async () => {
  const { options } = await optionsOf('--iface=eth1')
  expect(options.ifaces).toEqual(['eth1'])
  expect((await withEnvironment({ FLANNELD_IFACE: 'eth2', FLANNELLETTE_WORKERS: '2' })).options).toMatchObject({
    ifaces: ['eth2'],
    workers: 2,
  })
})

test('config show takes flags as flannel writes them and says where each value is from', async () => {
  const { code, out } = await run('config', 'show', '--origin', '-iface=eth1', '--etcd-password', 'hunter2', '-ip-masq')
  expect(code).toBeUndefined()
  expect(out).toMatch(/^iface +eth1 +--iface$/m)
  expect(out).toMatch(/^ip-masq +true +--ip-masq$/m)
  expect(out).toMatch(/^etcd-password +\*{8} +--etcd-password$/m)
  expect(out).toMatch(/^iface-regex +- +default$/m)
  expect(out).not.toContain('hunter2')
  const json = (await run('config', 'show', '-o', 'json', '-v=3', '-iface=a', '-iface=b')).out
  const { flags } = JSON.parse(json) as { flags: { name: string }[] }
  expect(flags.filter(({ name }) => name === 'v' || name === 'iface')).toEqual([
    { name: 'iface', value: ['a', 'b'], origin: 'flag', source: '--iface' },
    { name: 'v', value: '3', origin: 'flag', source: '--v' },
  ])
})

test('config check prints mistakes as compilers do, and ends with 2', async () => {
  const file = `${temporaryDirectory()}/net-conf.json`
  writeFileSync(file, '{"Network": "10.244.0.0/29",\n "Backnd": {"Type": "vxlan"}}')
  const bad = await run('config', 'check', file)
  expect(bad.code).toBe(2)
  expect(bad.out.split('\n')).toEqual([
    `${file}:1:13: error: Network 10.244.0.0/29 is too small for four subnets; take a /28 or larger`,
    `${file}:2:2: warning: Backnd is a key that nobody reads: Backend is meant?`,
    '',
  ])
  writeFileSync(file, '{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}}')
  const good = await run('config', 'check', file, '-o', 'json')
  expect([good.code, JSON.parse(good.out)]).toMatchObject([0, { version: 1, file, valid: true, findings: [] }])
  expect((await run('config', 'check', file)).out).toMatch(/^capacity +255 nodes, 253 pods each$/m)
  expect((await run('config', 'check', `${file}.none`)).err).toMatch(/^flannelette: .*cannot be read: ENOENT/)
})

describe('wrong usage is one line and exit code 2', () => {
  test.each([
    ['an unknown flag, with the nearest one', ['run', '--ifcae', 'eth0'], /--ifcae.*--iface/],
    ['an unknown command, with the nearest one', ['rnu'], /rnu.*run/],
    ['a truth apart from its flag', ['run', '--ip-masq', 'false'], /write --ip-masq=false/],
    ['a word that is no flag', ['run', 'eth0'], /too many arguments/],
    ['a store of Kubernetes', ['run', '--kube-subnet-mgr'], /Kubernetes, which this version does not have.*--store/],
    ['a store of another kind', ['run', '--store', 'etcd:x', '--state-dir', '/nowhere'], /etcd:x.*file:/],
    ['a word that is no choice', ['run', '--store', 'file:/x', '--dataplane', 'xdp'], /xdp.*userspace, kernel/],
    ['a bad address', ['run', '--store', 'file:/x', '--public-ip', '10.1'], /--public-ip 10\.1 /],
    ['a source that is no CIDR', ['run', '--store', 'file:/x', '--source-allow', '10.8.0.0'], /10\.8\.0\.0 is no CIDR/],
    ['no worker', ['run', '--store', 'file:/x', '--workers', '0'], /1 to 16/],
    ['a share of a source port', ['run', '--store', 'file:/x', '--source-ports', '1.5'], /1 to 256/],
    ['a bad margin', ['run', '--store', 'file:/x', '--subnet-lease-renew-margin', '0'], /1 to 1439/],
  ])('%s', async (_, argv, words) => {
    const { code, out, err } = await run(...argv)
    expect([code, out]).toEqual([2, ''])
    expect(err).toMatch(words)
    expect(err).toMatch(/^[^\n]+\n$/)
  })
})

test.each([
  ['an unknown command', ['rnu'], 'flannelette --help'],
  ['an unknown flag', ['run', '--ifcae', 'eth0'], 'flannelette run --help'],
  ['a missing word', ['lab', 'fault', 'loss'], 'flannelette lab fault loss --help'],
  ['no number', ['lab', 'ping', 'all', '-c', 'x'], 'flannelette lab ping --help'],
])('a line about %s begins with our name and ends with the way to the help', async (_, argv, help) => {
  const { err } = await run(...argv)
  expect(err).toMatch(/^flannelette: [a-z]/)
  expect(err.endsWith(`; see ${help}\n`)).toBe(true)
})

test.each([
  ['up'],
  ['exec', 'pod1.1', '--', 'true'],
  ['ping', 'all'],
  ['iperf', 'pod1.1', 'pod2.1'],
  ['fault', 'loss', '1'],
  ['heal'],
  ['down'],
  ['demo', '--once'],
])('lab %s without the rights for it says so', async (...words) => {
  const user = vi.spyOn(process as { geteuid(): number }, 'geteuid').mockReturnValue(1000)
  onTestFinished(() => user.mockRestore())
  const { err } = await run('lab', ...words)
  expect(err).toBe('flannelette: a lab needs network namespaces; run it as root\n')
})

test.each([['down'], ['status'], ['ping', 'all']])('lab %s takes no name that leads elsewhere', async (...words) => {
  for (const name of ['..', '../store', 'a.b', '']) {
    const { code, err } = await run('lab', ...words, '--name', name)
    expect(code).toBe(2)
    expect(err).toMatch(/^flannelette: the lab name ".*" will not do; use up to 16/)
  }
})

test('"all" is pinged alone', async () => {
  const { code, err } = await run('lab', 'ping', 'all', 'pod1.1')
  expect(code).toBe(2)
  expect(err).toMatch(/^flannelette: "all" is every pair of pods: pod1\.1 is one word too many; use: ping all/)
})

test.each(['0.00001', '0.0009%'])('a share of %s is refused as smaller than nft can draw', async (share) => {
  const { code, err } = await run('lab', 'fault', 'loss', share)
  expect(code).toBe(2)
  expect(err).toMatch(/smaller share than nft can draw; use 0\.001 % or more\n$/)
})

test('a store that does not exist is one line with the remedy, exit code 1', async () => {
  const directory = temporaryDirectory()
  const { code, err } = await run('run', '--store', `file:${directory}/none`, '--state-dir', `${directory}/state`)
  expect(code).toBe(1)
  expect(err).toMatch(new RegExp(`^flannelette: .*${directory}/none.*--store\\n$`))
})

test.each([
  [[]],
  [['run']],
  [['status']],
  [['ping']],
  [['doctor']],
  [['config', 'check']],
  [['lab']],
  [['lab', 'ping']],
])('the help of %j tells the exit codes, once', async (words) => {
  const { out, code } = await run(...words, '--help')
  expect(code).toBe(0)
  expect(out.match(/exit codes/gi)).toHaveLength(1)
  expect(out).toMatch(/^exit codes:.*\b2\b/ims)
})

test.each([['--help'], ['run', '--help']])('%s %s begins with examples and lists the exit codes', async (...argv) => {
  const { code, out, err } = await run(...argv)
  expect([code, err]).toEqual([0, ''])
  expect(out).toMatch(/^Examples:\n/)
  expect(out).toMatch(/Exit codes:/)
})

test('without arguments the help is short and goes to stderr', async () => {
  const { code, out, err } = await run()
  expect([code, out]).toEqual([2, ''])
  expect(err).toMatch(/^Usage: flannelette/)
})

test('the version is that of the package', async () => {
  expect((await run('--version')).out).toMatch(/^\d+\.\d+\.\d+\n$/)
})
