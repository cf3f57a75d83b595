// How one gets at etcd, or does not: certificates, users, rights, wrong addresses. Each failure says what is wrong and
// what to do, and no message holds a password.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { EtcdOptions } from '../../src/config/etcd-options.ts'
import type { FlanneletteError } from '../../src/errors.ts'
import { openEtcdStore } from '../../src/store/etcd/etcd-store.ts'
import { type Certificates, makeCertificates } from '../support/certificates.ts'
import { etcdOptionsFor } from '../support/etcd-harness.ts'
import { EtcdServer, freePort } from '../support/etcd-server.ts'
import { RecordingLog } from '../support/recording-log.ts'
import { request } from '../support/store-harness.ts'
import { VirtualClock } from '../support/virtual-clock.ts'

const PREFIX = '/coreos.com/network'
const CONFIG = '{"Network":"10.244.0.0/16"}'
const SECRET = 'planted-secret'

let directory: string
let certificates: Certificates
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'flannelette-test-'))
  certificates = makeCertificates(directory)
})
afterAll(() => rmSync(directory, { recursive: true, force: true }))

/** Reads the config: what comes, or the error. */
async function attempt(url: string | readonly string[], options: Partial<EtcdOptions> = {}) {
  const endpoints = typeof url === 'string' ? [url] : url
  const log = new RecordingLog()
  const etcd = { ...etcdOptionsFor(endpoints, PREFIX), ...options }
  const store = openEtcdStore(etcd, { clock: new VirtualClock(), log, random: () => 0 })
  onTestFinished(() => store.close())
  try {
    return { config: await store.readNetworkConfig(), log }
  } catch (error) {
    const { code, oneLine } = error as FlanneletteError
    expect(oneLine + JSON.stringify(log.lines)).not.toContain(SECRET)
    return { code, oneLine }
  }
}

describe('TLS', () => {
  let server: EtcdServer
  beforeAll(async () => {
    server = await EtcdServer.start({ tls: { ...certificates.server, ...clientOf(certificates) }, clientAuth: true })
    server.ctl('put', `${PREFIX}/config`, CONFIG)
  })
  afterAll(() => server.stop())

  /** etcdctl shows the server's own certificate, which serves as a client's, too. */
  const clientOf = ({ server: { ca, cert, key } }: Certificates) => ({ ca, cert, key })

  test('with CA and client certificate it works', async () => {
    const { ca, cert, key } = certificates.client
    expect(await attempt(server.url, { caFile: ca, certFile: cert, keyFile: key })).toMatchObject({ config: CONFIG })
  })

  test.each([
    ['an unknown CA', (c: Certificates) => ({ caFile: c.stranger.ca, ...pair(c.client) }), /--etcd-cafile/],
    ['the CAs of the system', (c: Certificates) => pair(c.client), /--etcd-cafile/],
    ['no client certificate', (c: Certificates) => ({ caFile: c.server.ca }), /--etcd-certfile|closed the connection/],
    [
      'a stranger’s certificate',
      (c: Certificates) => ({ caFile: c.server.ca, ...pair(c.stranger) }),
      /--etcd-certfile/,
    ],
  ])('%s: refused, with the flag to look at', async (_, options, remedy) => {
    const { code, oneLine } = await attempt(server.url, options(certificates))
    expect([code, oneLine]).toEqual(['store-refused', expect.stringMatching(remedy)])
  })

  test('plain HTTP to a server that speaks TLS is told so', async () => {
    const { code, oneLine } = await attempt(server.url.replace('https', 'http'))
    expect([code, oneLine]).toEqual(['store-unreadable', expect.stringContaining('if it speaks TLS, give https://')])
  })

  test('TLS to a server that does not speak it is told so', async () => {
    const plain = await EtcdServer.start()
    onTestFinished(() => plain.stop())
    const { code, oneLine } = await attempt(plain.url.replace('http', 'https'), { caFile: certificates.server.ca })
    expect([code, oneLine]).toEqual([
      'store-unreadable',
      expect.stringContaining('if it does not speak TLS, give http://'),
    ])
  })
})

const pair = ({ cert, key }: { cert: string; key: string }) => ({ certFile: cert, keyFile: key })

describe('users', () => {
  let server: EtcdServer
  beforeAll(async () => {
    server = await EtcdServer.start()
    server.ctl('put', `${PREFIX}/config`, CONFIG)
    server.ctl('user', 'add', `root:${SECRET}`)
    server.ctl('user', 'grant-role', 'root', 'root')
    server.ctl('user', 'add', `flannel:${SECRET}`)
    server.ctl('user', 'add', `nobody:${SECRET}`)
    server.ctl('role', 'add', 'flannel')
    server.ctl('role', 'grant-permission', 'flannel', 'readwrite', '--prefix=true', `${PREFIX}/`)
    server.ctl('user', 'grant-role', 'flannel', 'flannel')
    server.ctl('auth', 'enable')
  })
  afterAll(() => server.stop())

  test('with rights on the prefix reads the config, takes, renews and gives back a lease, and watches', async () => {
    expect(await attempt(server.url, { username: 'flannel', password: SECRET })).toMatchObject({ config: CONFIG })
    const etcd = { ...etcdOptionsFor([server.url], PREFIX), username: 'flannel', password: SECRET }
    const clock = new VirtualClock()
    const store = openEtcdStore(etcd, { clock, log: new RecordingLog(), random: () => 0 })
    onTestFinished(() => store.close())
    const lease = await store.renew(await store.acquire(request('192.0.2.1')))
    expect(await store.read(lease)).toMatchObject({ revision: lease.revision })
    const watch = store.watch(AbortSignal.timeout(60_000))[Symbol.asyncIterator]()
    expect((await watch.next()).value).toMatchObject({ leases: [{ subnet: lease.subnet }] })
    await store.release(lease)
    expect((await watch.next()).value).toMatchObject({ type: 'snapshot', leases: [] })
    await watch.return?.()
  })

  test.each([
    [
      'a wrong password',
      { username: 'flannel', password: `not-${SECRET}` },
      /authentication failed for user "flannel".*--etcd-password/,
    ],
    ['no user', {}, /wants a user name.*give --etcd-username/],
    [
      'no rights',
      { username: 'nobody', password: SECRET },
      /permission denied for user "nobody".*grant read and write on \/coreos/,
    ],
  ])('%s: refused, and said how', async (_, options, words) => {
    const { code, oneLine } = await attempt(server.url, options)
    expect([code, oneLine]).toEqual(['store-refused', expect.stringMatching(words)])
  })

  test('are left out where the server knows none, as with flannel', async () => {
    const plain = await EtcdServer.start()
    onTestFinished(() => plain.stop())
    plain.ctl('put', `${PREFIX}/config`, CONFIG)
    const { config, log } = await attempt(plain.url, { username: 'flannel', password: SECRET })
    expect(config).toBe(CONFIG)
    expect(log?.of('etcd-auth-off')).toHaveLength(1)
  })
})

describe('endpoints', () => {
  test('of several the first that answers is used', async () => {
    const server = await EtcdServer.start()
    onTestFinished(() => server.stop())
    server.ctl('put', `${PREFIX}/config`, CONFIG)
    const dead = `http://127.0.0.1:${await freePort()}`
    expect(await attempt([dead, server.url])).toMatchObject({ config: CONFIG })
  })

  test('that all refuse are all named', async () => {
    const dead = [`http://127.0.0.1:${await freePort()}`, `http://127.0.0.1:${await freePort()}`]
    const { code, oneLine } = await attempt(dead)
    expect(code).toBe('store-unreadable')
    for (const endpoint of dead) expect(oneLine).toContain(`${endpoint}: connection refused`)
  })

  test('whose name is unknown is told so', async () => {
    const { oneLine } = await attempt('http://planted.invalid:2379')
    expect(oneLine).toContain('name cannot be resolved')
  })
})
