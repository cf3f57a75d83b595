// The file store: the rules of all lease stores, and what only files can do to it.
import { execFile, execFileSync } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { parseIpv4 } from '../../../dataplane/wire/address.ts'
import { formatPrefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import { parseNetworkConfig } from '../../../src/config/network-config.ts'
import { LeaseManager } from '../../../src/lease/lease-manager.ts'
import { silentLog } from '../../../src/log.ts'
import { FileStore } from '../../../src/store/file.ts'
import { formatSubnetKey } from '../../../src/store/flannel-json.ts'
import { formatLeaseFile } from '../../../src/store/lease-files.ts'
import { leaseStoreCompliance } from '../../compliance/lease-store.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { seededRandom } from '../../support/seeded-random.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'
import { VirtualClock } from '../../support/virtual-clock.ts'

const CONFIG = '{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}'
const MAC = '0a:00:00:00:00:01'

leaseStoreCompliance(() => {
  const clock = new VirtualClock()
  const base = mkdtempSync(join(tmpdir(), 'flannelette-test-'))
  onTestFinished(() => rmSync(base, { recursive: true, force: true }))
  const directory = `${base}/store`
  mkdirSync(`${directory}/subnets`, { recursive: true })
  const fileOf = (subnet: string) => `${directory}/subnets/${subnet.replace('/', '-')}`
  const random = seededRandom(1)
  return {
    clock,
    open: () => new FileStore(directory, { clock, log: silentLog, random }),
    setConfig: (text) => {
      if (text === null) rmSync(`${directory}/config`)
      else writeFileSync(`${directory}/config`, text)
    },
    put: (lease) => writeFileSync(fileOf(formatSubnetKey(lease)), formatLeaseFile(lease)),
    remove: (subnet) => rmSync(fileOf(subnet)),
    setOutage: (away) => (away ? renameSync(directory, `${base}/away`) : renameSync(`${base}/away`, directory)),
  }
})

function makeStore() {
  const directory = temporaryDirectory()
  const clock = new VirtualClock()
  const log = new RecordingLog()
  writeFileSync(`${directory}/config`, CONFIG)
  mkdirSync(`${directory}/subnets`)
  const open = () => new FileStore(directory, { clock, log, random: seededRandom(1) })
  const fileOf = (key: string) => `${directory}/subnets/${key}`
  return { directory, clock, log, open, fileOf }
}

function request(publicIp: string, previous: string | null = null) {
  return {
    network: parseNetworkConfig(CONFIG),
    publicIp: parseIpv4(publicIp)!,
    previousSubnet: previous === null ? null : parsePrefix(previous),
    previousIpv6Subnet: null,
    attributes: () => peerLease('10.244.0.0/24', publicIp, MAC).attributes,
  }
}

const BOOT = readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()
/** The second line of a lease that ends when no calendar has a date any more. */
const FAR = `{"Expires":"2026-01-02T00:00:00Z","Boot":"${BOOT}","ExpiresAtBootMs":${2 ** 53 - 1}}`

/** Subnets in the present snapshot. */
async function present(store: FileStore): Promise<string[]> {
  for await (const news of store.watch(AbortSignal.timeout(10_000))) {
    return news.type === 'snapshot' ? news.leases.map((lease) => formatPrefix(lease.subnet!)) : [news.why]
  }
  return []
}

describe('lease files', () => {
  test("hold flannel's value byte for byte on the first line", async () => {
    const { open, fileOf } = makeStore()
    await open().acquire(request('192.0.2.1', '10.244.6.0/24'))
    const [value, meta] = readFileSync(fileOf('10.244.6.0-24'), 'utf8').split('\n')
    expect(value).toBe(
      `{"PublicIP":"192.0.2.1","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"${MAC}"}}`,
    )
    expect(JSON.parse(meta ?? '')).toEqual({
      Expires: '2026-01-02T00:00:00.000Z',
      Revision: 1,
      Boot: readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim(),
      ExpiresAtBootMs: 24 * 3600 * 1000,
    })
  })

  test('of an earlier boot expire by the wall clock', async () => {
    const { open, fileOf, clock } = makeStore()
    const lease = { ...peerLease('10.244.6.0/24', '192.0.2.1', MAC), expiresAtMs: clock.wallMs() + 10_000 }
    writeFileSync(fileOf('10.244.6.0-24'), formatLeaseFile(lease, { bootId: 'an earlier one', atBootMs: 1 }))
    expect(await present(open())).toEqual(['10.244.6.0/24'])
    await clock.advance(11_000)
    expect(await present(open())).toEqual([])
  })

  test('without a second line are reservations', async () => {
    const { open, fileOf } = makeStore()
    writeFileSync(fileOf('10.244.6.0-24'), '{"PublicIP": "192.0.2.1"}\n')
    const lease = await open().acquire(request('192.0.2.1'))
    expect([formatPrefix(lease.subnet!), lease.expiresAtMs]).toEqual(['10.244.6.0/24', null])
  })

  test.each([
    ['no JSON', '10.244.9.0-24', '{bad'],
    ['no lease', '10.244.9.0-24', '{"PublicIP": 7}'],
    ['an empty file', '10.244.9.0-24', ''],
    ['a bad second line', '10.244.9.0-24', '{"PublicIP":"192.0.2.9"}\n{"Expires":"soon"}'],
    ['a name that is no key', 'README', 'hello'],
    ['an end that is no date', '10.244.9.0-24', `{"PublicIP":"192.0.2.9"}\n${FAR}`],
    ['a revision behind all numbers', '10.244.9.0-24', `{"PublicIP":"192.0.2.9"}\n{"Revision":${2 ** 53 - 1}}`],
  ])('one with %s costs one warning and none of the others', async (_, name, content) => {
    const { open, fileOf, log } = makeStore()
    await open().acquire(request('192.0.2.1', '10.244.6.0/24'))
    writeFileSync(fileOf(name), content)
    const store = open()
    expect(await present(store)).toEqual(['10.244.6.0/24'])
    expect(await present(store)).toEqual(['10.244.6.0/24'])
    expect(log.of('lease-file-unreadable')).toHaveLength(1)
    expect(log.of('lease-file-unreadable')[0]?.message).toContain(name)
  })

  test.each<[string, string, (path: string) => void]>([
    ['a directory', 'lost+found', (path) => mkdirSync(path)],
    ['a directory with the name of a key', '10.244.9.0-24', (path) => mkdirSync(path)],
    ['a link that leads to itself', '10.244.9.0-24', (path) => symlinkSync(path, path)],
    ['a pipe that nobody writes to', '10.244.9.0-24', (path) => execFileSync('mkfifo', [path])],
  ])('an entry that is %s costs one warning and none of the others', async (_, name, place) => {
    const { open, fileOf, log } = makeStore()
    place(fileOf(name))
    const store = open()
    await store.acquire(request('192.0.2.1', '10.244.6.0/24'))
    expect(await present(store)).toEqual(['10.244.6.0/24'])
    expect(log.of('lease-file-unreadable').map((entry) => entry.message)).toEqual([expect.stringContaining(name)])
    const other = await store.acquire(request('192.0.2.2', '10.244.9.0/24'))
    expect(formatPrefix(other.subnet!) === '10.244.9.0/24').toBe(name === 'lost+found')
  })

  test('one that becomes bad keeps its last good content', async () => {
    const { open, fileOf } = makeStore()
    await open().acquire(request('192.0.2.1', '10.244.6.0/24'))
    const store = open()
    expect(await present(store)).toEqual(['10.244.6.0/24'])
    writeFileSync(fileOf('10.244.6.0-24'), '{"Publ')
    expect(await present(store)).toEqual(['10.244.6.0/24'])
  })

  test.each(['{"Publ', '', '\u0000\u0001'])(
    'a running node’s own that becomes bad (%j) is written again within a second, and warned about',
    async (rubbish) => {
      const { open, fileOf, clock, log } = makeStore()
      const store = open()
      const lease = await store.acquire(request('192.0.2.1', '10.244.6.0/24'))
      const others = { onLeases: () => {}, onOwnLease: () => {}, onStore: () => {} }
      const onLost = vi.fn()
      const manager = new LeaseManager(lease, true, { store, clock, log, renewMarginMs: 3600_000, ...others, onLost })
      manager.start()
      onTestFinished(() => manager.stop())
      await clock.advance(1000)
      writeFileSync(fileOf('10.244.6.0-24'), rubbish)
      await clock.advance(1000)
      expect(await open().read(lease)).toEqual(manager.lease)
      expect([manager.state, log.of('lease-overwritten').length, onLost.mock.calls]).toEqual(['held', 1, []])
      await clock.advance(60_000)
      expect([manager.lease.revision, log.of('lease-overwritten').length]).toEqual([lease.revision + 1, 1])
    },
  )

  test('the subnet of one that cannot be read is not given to anybody', async () => {
    const { open, fileOf } = makeStore()
    writeFileSync(fileOf('10.244.6.0-24'), '{bad')
    const lease = await open().acquire(request('192.0.2.1', '10.244.6.0/24'))
    expect(formatPrefix(lease.subnet!)).not.toBe('10.244.6.0/24')
    expect(readFileSync(fileOf('10.244.6.0-24'), 'utf8')).toBe('{bad')
  })

  test('half-made files of writers that died are swept away by the next writer', async () => {
    const { open, directory, fileOf } = makeStore()
    writeFileSync(fileOf('.99999-1.tmp'), '{"Pub')
    writeFileSync(`${directory}/.99999-2.tmp`, '7')
    await open().acquire(request('192.0.2.1', '10.244.6.0/24'))
    expect(readdirSync(`${directory}/subnets`)).toEqual(['10.244.6.0-24'])
    expect(readdirSync(directory).sort()).toEqual(['config', 'lock', 'revision', 'subnets'])
  })
})

test.each(['', '-7', '1e99', '9'.repeat(40), '\u0000\u0001', 'x'])(
  'a revision file that holds %j keeps no lease from being renewed',
  async (text) => {
    const { open, directory } = makeStore()
    const lease = await open().acquire(request('192.0.2.1', '10.244.6.0/24'))
    writeFileSync(`${directory}/revision`, text)
    const renewed = await open().renew(lease)
    expect(renewed.revision).toBe(lease.revision + 1)
    expect((await open().read(renewed))?.revision).toBe(renewed.revision)
  },
)

describe('the directory', () => {
  test('without a config is no store: leases are not counted as gone', async () => {
    const { open, directory } = makeStore()
    const store = open()
    const lease = await store.acquire(request('192.0.2.1'))
    rmSync(directory, { recursive: true })
    mkdirSync(directory)
    await expect(store.read(lease)).rejects.toMatchObject({ code: 'store-unreadable' })
  })

  test('that is a file is said to be one', async () => {
    const path = `${temporaryDirectory()}/store`
    writeFileSync(path, '')
    const store = new FileStore(path, { clock: new VirtualClock(), log: silentLog, random: () => 0 })
    await expect(store.readNetworkConfig()).rejects.toMatchObject({
      code: 'store-unreadable',
      oneLine: expect.stringMatching(/not a directory.*--store/),
    })
  })

  test('names the missing config by its path, with an example', async () => {
    const { open, directory } = makeStore()
    rmSync(`${directory}/config`)
    await expect(open().readNetworkConfig()).rejects.toMatchObject({
      oneLine: expect.stringMatching(new RegExp(`${directory}/config.*echo .*Network`)),
    })
  })

  test('a lost revision counter goes on behind the highest revision in use', async () => {
    const { open, directory } = makeStore()
    const first = await open().acquire(request('192.0.2.1'))
    rmSync(`${directory}/revision`)
    expect((await open().renew(first)).revision).toBe(first.revision + 1)
  })
})

describe('other processes', () => {
  const LOCK_AND_DIE = 'exec 9>>"$0"; flock 9; touch "$1"; kill -9 $$'
  const HOLD = 'exec 9>>"$0"; flock 9; echo held; read line'

  test('a holder of the lock that was killed does not block the next one', async () => {
    const { open, directory } = makeStore()
    const dying = promisify(execFile)('sh', ['-c', LOCK_AND_DIE, `${directory}/lock`, `${directory}/held`])
    await expect(dying).rejects.toMatchObject({ signal: 'SIGKILL' })
    expect(existsSync(`${directory}/held`)).toBe(true)
    await expect(open().acquire(request('192.0.2.1'))).resolves.toBeDefined()
  })

  test('a change waits while another process holds the lock, and goes on when it lets go', async () => {
    const { open, directory } = makeStore()
    const holder = execFile('sh', ['-c', HOLD, `${directory}/lock`])
    onTestFinished(() => void holder.kill('SIGKILL'))
    await new Promise((resolve) => holder.stdout?.once('data', resolve))
    let done = false
    const waiting = open()
      .acquire(request('192.0.2.1'))
      .finally(() => {
        done = true
      })
    await new Promise((resolve) => setImmediate(resolve))
    expect(done).toBe(false)
    expect(statSync(`${directory}/subnets`).isDirectory() && readdirSync(`${directory}/subnets`)).toEqual([])
    holder.stdin?.end()
    await expect(waiting).resolves.toBeDefined()
  })
})
