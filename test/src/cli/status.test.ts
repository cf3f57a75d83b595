// `flannelette status`: what it says, in which form, and with which exit code.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { describe, expect, onTestFinished, test } from 'vitest'
import { parse } from 'yaml'
import { parseDuration } from '../../../src/cli/duration.ts'
import { statusCommand } from '../../../src/cli/status.ts'
import { exitCodeOf, reportOf } from '../../../src/cli/status-report.ts'
import { statusText } from '../../../src/cli/status-text.ts'
import { API_SOCKET, ApiServer } from '../../../src/daemon/api-server.ts'
import type { DaemonStatus } from '../../../src/daemon/status-file.ts'
import { ROOT } from '../../support/source-tree.ts'
import { HEALTHY, SILENT_PEER, TAKEN_MS, TROUBLED } from '../../support/status-example.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

const PLAIN = { colour: false, unicode: true }
const live = (status: DaemonStatus) => reportOf({ isLive: true, status })
const textOf = (status: DaemonStatus, wide = false) => statusText(live(status), PLAIN, TAKEN_MS, wide)

/** Runs the command against a state directory. */
async function run(stateDirectory: string, ...words: string[]) {
  let out = ''
  let told = ''
  let code: number | undefined
  const command = statusCommand({
    out: (text) => {
      out += text
    },
    exit: (given) => {
      code = given
    },
    tell: (text) => {
      told += text
    },
  }).exitOverride()
  await command.parseAsync(['--state-dir', stateDirectory, ...words], { from: 'user' })
  return { out, code, told }
}

/** A daemon that answers with what `current` gives, and the state directory that it is in. */
async function daemonWith(current: () => DaemonStatus): Promise<string> {
  const directory = temporaryDirectory()
  const server = new ApiServer({ path: join(directory, API_SOCKET), traceable: () => null, status: current })
  await server.start()
  onTestFinished(() => server.stop())
  return directory
}

test.each([
  ['none', 'no dataplane'],
  ['commands', 'commands of the extension'],
] as const)('a node whose packets we do not move (%s) says so, and claims no device', (dataplane, words) => {
  const node = { ...HEALTHY.node!, device: '', vni: 0, port: 0, mtu: 1500 }
  const text = textOf({ ...HEALTHY, dataplane, driver: 'none', node })
  expect(text).toContain(` · ${words} · `)
  expect(text).toMatch(/^device +none of its own, MTU 1500$/m)
})

describe('where the daemon is found', () => {
  test('is told to the command that comes next, when it is not the usual place', async () => {
    const directory = await daemonWith(() => HEALTHY)
    expect((await run(directory)).out).toContain(`next: flannelette ping 192.0.2.2 --state-dir ${directory}\n`)
  })

  test('on the socket that it was told to make, when nothing is said', async () => {
    const [directory, elsewhere] = [temporaryDirectory(), join(temporaryDirectory(), 'other.sock')]
    const argv = ['-e', 'console.log(); setInterval(() => {}, 1000)', 'run', `--api-socket=${elsewhere}`]
    const child = spawn(process.execPath, argv, { stdio: ['ignore', 'pipe', 'ignore'] })
    onTestFinished(() => void child.kill('SIGKILL'))
    await once(child.stdout, 'data')
    writeFileSync(join(directory, 'status.json'), JSON.stringify({ ...HEALTHY, pid: child.pid, state: 'degraded' }))
    const server = new ApiServer({ path: elsewhere, traceable: () => null, status: () => HEALTHY })
    await server.start()
    onTestFinished(() => server.stop())
    expect(await run(directory)).toMatchObject({ code: 0, out: expect.stringContaining('192.0.2.1 ready') })
  })
})

describe('one screen', () => {
  test('tells a node that is well in few words', () => {
    const text = textOf(HEALTHY)
    expect(text).toContain('✓ 192.0.2.1 ready · userspace dataplane, offload · pid 4242\n')
    expect(text).toContain('lease      10.244.1.0/24, held\n')
    expect(text).toContain('expires    in 23h (2026-01-02T11:00:00.000Z)\n')
    expect(text).toContain('renewal    in 22h (2026-01-02T10:00:00.000Z)\n')
    expect(text).toMatch(/192\.0\.2\.2 +10\.244\.2\.0\/24 +✓ active +2s ago +3s ago +12 +11\n/)
    expect(text).toContain('no packet dropped\n')
    expect(text).toMatch(/\nnext: flannelette ping 192\.0\.2\.2\n$/)
  })

  test('tells by which way peers are reached where there are several, and what is in the way', () => {
    expect(textOf(HEALTHY)).not.toContain('WAY')
    const [peer] = HEALTHY.peers
    const by = (way: 'direct' | 'tunnel' | 'none', why = '') => ({
      ...peer!,
      ways: [{ subnet: '10.244.2.0/24', way, why }],
    })
    expect(textOf({ ...HEALTHY, peers: [by('direct')] })).toMatch(
      /SUBNET +WAY +STATE.*\n.*10\.244\.2\.0\/24 +direct +✓/,
    )
    const why = 'a route that is not ours is in the way: 10.244.2.0/24 dev eth1 proto static'
    const hidden = textOf({ ...HEALTHY, peers: [by('tunnel', why)] })
    expect(hidden).toContain(`warning: 10.244.2.0/24 (192.0.2.2): ${why}\n`)
    const part = 'a route that is not ours takes a part of it: 10.244.2.128/25 dev eth1 proto static'
    const halved = textOf({ ...HEALTHY, peers: [by('tunnel', part)] })
    expect(halved).toContain(`warning: 10.244.2.0/24 (192.0.2.2): ${part}\n`)
    const cut = textOf({ ...HEALTHY, peers: [by('tunnel', `${part}, and 7 others`)] })
    expect(cut).toContain(`${part}, and 7 others\n`)
    const node = { ...HEALTHY.node!, device: '', vni: 0, port: 0, mtu: 1500 }
    const lost = textOf({ ...HEALTHY, dataplane: 'routes', driver: 'none', node, peers: [by('none', 'no neighbour')] })
    expect(lost).toContain('warning: 10.244.2.0/24 (192.0.2.2) is pending: no neighbour\n')
    expect(textOf({ ...HEALTHY, peers: [by('none', why)] })).toContain(
      `is pending: ${why}; if nothing needs it: ip route delete 10.244.2.0/24 dev eth1 proto static\n`,
    )
    expect(lost).toContain('ready · routes of the kernel, no tunnel · pid 4242\n')
    expect(lost).toMatch(/\ndevice +none of its own, MTU 1500\n/)
  })

  test('tells of a thousand leases that cannot be read in one line with one of them', () => {
    const examples = [{ key: '/net/subnets/x', why: 'its name is no lease key' }]
    const text = textOf({ ...HEALTHY, unreadableLeases: { count: 1000, examples } })
    const line = '1000 leases in the store cannot be read, such as /net/subnets/x: its name is no lease key'
    expect(text.split('\n').filter((one) => one.includes('cannot be read'))).toEqual([`warning: ${line}`])
    expect(textOf({ ...HEALTHY, unreadableLeases: { count: 0, examples: [] } })).toBe(textOf(HEALTHY))
  })

  test('names the peers that an extension’s command has not worked for, and quotes it', () => {
    const [peer] = HEALTHY.peers
    const why = 'SubnetAddCommand failed 3 times: exit code 2: no such device'
    const pending = { ...peer!, ways: [{ subnet: peer!.subnet, way: 'none' as const, why }] }
    const other = { ...peer!, publicIp: '192.0.2.4', subnet: '10.244.4.0/24', ways: [] }
    const status = {
      ...HEALTHY,
      dataplane: 'commands',
      driver: 'none',
      peers: [pending, other],
      pendingPeers: 1,
    } as const
    const text = textOf(status)
    expect(text).toMatch(
      /SUBNET +WAY .*\n192\.0\.2\.2 +10\.244\.2\.0\/24 +pending .*\n192\.0\.2\.4 +10\.244\.4\.0\/24 +- /,
    )
    expect(text).toContain(`warning: 10.244.2.0/24 (192.0.2.2) is pending: ${why}\n`)
  })

  test('tells of drops no more than is counted', () => {
    expect(textOf({ ...HEALTHY, counters: {} })).toContain('dropped packets are not counted\n')
    const device = { 'outbound.dropped': 2, 'outbound.errors': 1, 'inbound.dropped': 0, 'inbound.errors': 0 }
    const text = textOf({ ...HEALTHY, dataplane: 'kernel', driver: 'kernel', counters: device })
    expect(text).toMatch(/\n3 +outbound +kernel +the kernel's device dropped them, and tells no reason\n/)
  })

  test('has a column for path MTUs while there is one', () => {
    expect(textOf(HEALTHY)).not.toContain('PATH MTU')
    const [peer] = HEALTHY.peers
    const text = textOf({
      ...HEALTHY,
      peers: [
        { ...peer!, pathMtu: 1350 },
        { ...peer!, publicIp: '192.0.2.4' },
      ],
    })
    expect(text).toMatch(/RECEIVED +PATH MTU\n192\.0\.2\.2 .* 1350\n192\.0\.2\.4 .* -\n/)
  })

  test('puts a peer that does not answer first, and names the command that tells why', () => {
    const text = textOf({ ...HEALTHY, peers: [...HEALTHY.peers, SILENT_PEER] })
    expect(text).toMatch(/PEER.*\n192\.0\.2\.3 .*✗ sending, nothing comes back +2s ago +never +43 +0\n192\.0\.2\.2 /)
    expect(text).toContain('warning: sending to 192.0.2.3 (10.244.3.0/24), but nothing comes back\n')
    expect(text).toMatch(/next: flannelette ping 192\.0\.2\.3\n$/)
  })

  test('tells drops with their sentence, most packets first, and every kind of trouble', () => {
    const text = textOf(TROUBLED)
    expect(text).toMatch(/42 +outbound +no-route +no lease covers the destination.*\n7 +inbound +rx-queue-full/)
    for (const words of [
      'the store is away',
      'incompatible: host-gw',
      'refused 10.244.9.9 from 192.0.2.66',
      'udp-gso',
    ]) {
      expect(text).toContain(words)
    }
  })

  test('of a start tells whether the store answers, and what is waited for', () => {
    const starting = { ...HEALTHY, state: 'starting', lease: null, node: null, peers: [] } as const
    const store = { name: 'etcd:http://a:1/x', reachable: true, why: 'there is no network config at /x/config' }
    expect(textOf({ ...starting, store })).toContain(
      '\nstore      etcd:http://a:1/x answers: there is no network config',
    )
    expect(textOf({ ...starting, store: { ...store, reachable: false, why: 'refused' } })).toContain(
      'is away: refused\n',
    )
  })

  test('stays one screen with ten thousand peers; -o wide shows all', () => {
    const peers = Array.from({ length: 10_000 }, (_, n) => ({
      ...HEALTHY.peers[0]!,
      publicIp: `10.0.${n >> 8}.${n & 255}`,
    }))
    expect(textOf({ ...HEALTHY, peers }).split('\n').length).toBeLessThan(40)
    expect(textOf({ ...HEALTHY, peers })).toContain('and 9985 more: -o wide\n')
    expect(textOf({ ...HEALTHY, peers }, true).split('\n').length).toBeGreaterThan(10_000)
  })

  test('is ASCII where nothing else can be shown', () => {
    const text = statusText(live(TROUBLED), { colour: false, unicode: false }, TAKEN_MS, true)
    expect(text).toMatch(/^FAIL 192/)
    expect([...text].filter((character) => character > '\x7f')).toEqual([])
  })

  test('says why a dataplane was taken that nobody named', () => {
    const text = textOf({ ...HEALTHY, dataplane: 'kernel', dataplaneWhy: 'auto: this kernel has vxlan devices' })
    expect(text).toContain('ready · kernel dataplane (auto: this kernel has vxlan devices) · pid 4242\n')
  })

  test('of a kernel dataplane, which counts for the whole device, leaves peers uncounted', () => {
    const peers = HEALTHY.peers.map((peer) => ({ ...peer, state: null, traffic: null }))
    expect(textOf({ ...HEALTHY, peers })).toMatch(/not counted +- +- +- +-\n/)
  })
})

describe('the exit code', () => {
  const NOT_READY = { ...HEALTHY.health!, ready: false }
  test.each([
    ['0 when ready', HEALTHY, true, 0],
    ['1 when degraded', TROUBLED, true, 1],
    ['1 while starting', { ...HEALTHY, state: 'starting', lease: null, node: null, peers: [] }, true, 1],
    ['1 when a check failed', { ...HEALTHY, health: NOT_READY }, true, 1],
    ['4 without a daemon', HEALTHY, false, 4],
  ] as const)('is %s', (_, status, isLive, code) => {
    expect(exitCodeOf(reportOf({ isLive, status }))).toBe(code)
  })
})

describe('the command', () => {
  test('asks the daemon', async () => {
    const { out, code } = await run(await daemonWith(() => HEALTHY))
    expect(out).toContain('192.0.2.1 ready')
    expect(code).toBe(0)
  })

  test('shows what a dead daemon said last, says that it is dead, and what to do', async () => {
    const directory = temporaryDirectory()
    writeFileSync(join(directory, 'status.json'), JSON.stringify(HEALTHY))
    const { out, code } = await run(directory)
    expect(code).toBe(4)
    expect(out).toContain('192.0.2.1 not answering')
    expect(out).toContain('warning: the daemon (pid 4242) does not answer')
    expect(out).toContain('next: systemctl restart flannelette')
  })

  test.each([
    ['was stopped', { state: 'stopping' }, 'stopped', 'was stopped', 'systemctl start flannelette'],
    [
      ...['refused to start', { state: 'stopping', lease: null, node: null }, 'not started'],
      ...['ended before it had a lease', 'journalctl -u flannelette -e; systemctl start flannelette'],
    ],
    [
      ...['has lost its lease', { state: 'lost' }, 'lost', 'lost its lease and ended'],
      'journalctl -u flannelette -e; systemctl start flannelette',
    ],
  ] as const)(
    'says of a daemon that %s just that, and which command is next',
    async (_, last, heading, words, next) => {
      const directory = temporaryDirectory()
      writeFileSync(join(directory, 'status.json'), JSON.stringify({ ...HEALTHY, ...last }))
      const { out, code } = await run(directory)
      expect(code).toBe(4)
      expect(out).toMatch(new RegExp(`^✗ .* ${heading} · `))
      expect(out).toContain(`warning: the daemon (pid 4242) ${words}: this is what it said last\n`)
      expect(out).toContain(`\nnext: ${next}\n`)
    },
  )

  test('fails with a way out where no daemon ever was', async () => {
    const failure = expect.objectContaining({
      code: 'daemon-unreachable',
      exitCode: 4,
      remedy: expect.stringMatching(/run/),
    })
    await expect(run(temporaryDirectory())).rejects.toEqual(failure)
  })

  test('speaks JSON and YAML of one content, and names', async () => {
    const place = await daemonWith(() => TROUBLED)
    const { out } = await run(place, '-o', 'json')
    expect(JSON.parse(out)).toMatchObject({ version: 1, daemon: 'running', ready: false, status: TROUBLED })
    expect((await run(place, '--json')).out).toBe(out)
    expect(parse((await run(place, '-o', 'yaml')).out)).toEqual(JSON.parse(out))
    expect((await run(place, '-o', 'name')).out).toBe('peer/192.0.2.2\npeer/192.0.2.3\n')
  })

  test('waits until the node is ready, or has so many peers', async () => {
    let asked = 0
    const place = await daemonWith(() => (++asked < 3 ? { ...HEALTHY, state: 'starting', peers: [] } : HEALTHY))
    expect(await run(place, '--wait')).toMatchObject({ code: 0, out: expect.stringContaining('192.0.2.1 ready') })
    expect(await run(place, '--wait', '--for', 'peers=1')).toMatchObject({ code: 0 })
  })

  test.each(['', 'null', '[]', '"x"', '{"version":1}', JSON.stringify({ ...HEALTHY, version: 7 }), '\u0000\u0001'])(
    'takes a status file that holds %j for none',
    async (text) => {
      const directory = temporaryDirectory()
      writeFileSync(join(directory, 'status.json'), text)
      await expect(run(directory)).rejects.toMatchObject({
        ...{ code: 'daemon-unreachable', message: expect.stringMatching(/^no daemon answers at /) },
      })
    },
  )

  test('tells of a daemon that answers in a way of its own', async () => {
    const place = await daemonWith(() => ({ ...HEALTHY, version: 2 as 1 }))
    await expect(run(place)).rejects.toMatchObject({
      ...{
        code: 'daemon-unreachable',
        message: expect.stringMatching(/answers at .* is a status of version 2, not 1$/),
      },
    })
  })

  test('shows nothing that a terminal would obey, but its colours', () => {
    const peer = {
      subnet: '10.244.9.0/24',
      publicIp: '192.0.2.9',
      reason: 'x',
      detail: 'bad \u001b[2J\u001b]0;x\u0007',
    }
    const text = statusText(live({ ...HEALTHY, leftOut: [peer] }), { colour: true, unicode: true }, TAKEN_MS, true)
    expect(text).toContain('bad \\x1b[2J\\x1b]0;x\\x07')
    // biome-ignore lint/suspicious/noControlCharactersInRegex: our own colours are taken out
    expect(text.replaceAll(/\u001b\[\d+m/g, '')).not.toContain('\u001b')
  })

  test('gives up at the time limit with 3, with a daemon or without', async () => {
    const place = await daemonWith(() => HEALTHY)
    expect(await run(place, '--wait', '--for', 'peers=2', '--timeout', '150ms')).toMatchObject({
      ...{ code: 3, told: 'not 2 peers within 0.15 s\n' },
    })
    const without = await run(temporaryDirectory(), '--wait', '--timeout', '1ms')
    expect(without).toMatchObject({ code: 3, out: '' })
    expect(without.told).toMatch(/^not ready within 0\.001 s: no daemon answers at .*api\.sock; start it/)
  })

  test('peers that are pending are none to wait for', async () => {
    const place = await daemonWith(() => ({ ...HEALTHY, pendingPeers: 1 }))
    expect(await run(place, '--wait', '--for', 'peers=1', '--timeout', '1ms')).toMatchObject({ code: 3 })
  })
})

test.each([
  ['a node that is well', { isLive: true, status: HEALTHY }],
  ['a node in trouble', { isLive: true, status: TROUBLED }],
  ['a node that starts', { isLive: true, status: { ...HEALTHY, node: null, lease: null, peers: [], health: null } }],
  ['a dead daemon', { isLive: false, status: HEALTHY }],
])('the JSON of %s is as docs/status.schema.json says', (_, found) => {
  const schema = JSON.parse(readFileSync(join(ROOT, 'docs/status.schema.json'), 'utf8'))
  const validate = new Ajv2020({ allErrors: true }).compile(schema)
  validate(JSON.parse(JSON.stringify(reportOf(found))))
  expect(validate.errors).toBeNull()
  validate({ ...JSON.parse(JSON.stringify(reportOf(found))), ready: 'perhaps' })
  expect(validate.errors).toHaveLength(1)
})

test('durations are those of Go', () => {
  expect(['0', '300ms', '90s', '1m30s', '1.5h'].map(parseDuration)).toEqual([0, 300, 90_000, 90_000, 5_400_000])
  for (const text of ['', '5', 's', '1d', '-1s', '1 s']) expect(() => parseDuration(text)).toThrow('duration')
})
