// A real daemon as those see it who look after it: probes while it waits and when it is ready, metrics of real packets,
// the status command on a living and a dead daemon, and what systemd is told from the start to the end.
import { execFileSync, spawnSync } from 'node:child_process'
import { closeSync, fstatSync, openSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { mainProgram } from '../../src/lab/daemon-process.ts'
import {
  CONFIG,
  daemonWords,
  type Host,
  RunningDaemon,
  startDaemon,
  twoHosts,
  writeConfig,
} from '../support/daemon-under-test.ts'
import { datagramReceiver } from '../support/datagram-receiver.ts'
import { linesOf } from '../support/output-lines.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const LIMIT_MS = 20_000
const PORTS = ['--healthz-ip', '127.0.0.1', '--healthz-port', '8081', '--metrics-address', ':9401']

/** Status code and body of a request on the host itself. */
function ask({ namespace }: Host, url: string): { code: number; body: string } {
  const script = `fetch('${url}').then(async (r) => console.log(JSON.stringify({ code: r.status, body: await r.text() })), (e) => console.log(JSON.stringify({ code: 0, body: String(e.cause) })))`
  return JSON.parse(
    execFileSync('ip', ['netns', 'exec', namespace, process.execPath, '-e', script], { encoding: 'utf8' }),
  )
}

/** Local addresses and ports of sockets on the host, in order. */
function listeners({ namespace }: Host, protocol: 'udp' | 'tcp'): string[] {
  const words = ['netns', 'exec', namespace, 'ss', '-Hln', `--${protocol}`]
  return linesOf(execFileSync('ip', words, { encoding: 'utf8' }))
    .map((line) => line.split(/\s+/)[3]!)
    .sort()
}

function status(host: Host, ...words: string[]): { code: number | null; out: string; err: string } {
  const argv = [mainProgram(), 'status', '--state-dir', host.stateDirectory, ...words]
  const { status: code, stdout, stderr } = spawnSync(process.execPath, argv, { encoding: 'utf8' })
  return { code, out: stdout, err: stderr }
}

test('probes and status follow a node from waiting to ready to dead, and metrics count its packets', async () => {
  const [a, b] = twoHosts()
  rmSync(join(a.store, 'config'))
  const daemon = startDaemon(a, PORTS)
  await expect.poll(() => ask(a, 'http://127.0.0.1:8081/healthz').code, { timeout: LIMIT_MS }).toBe(200)
  expect(ask(a, 'http://127.0.0.1:8081/readyz')).toMatchObject({
    code: 503,
    body: expect.stringContaining('[-] lease: none yet'),
  })
  await expect.poll(() => status(a)).toMatchObject({ code: 1, out: expect.stringContaining('starting') })

  writeConfig(a.store, CONFIG)
  const other = startDaemon(b)
  await daemon.ready(1)
  await other.ready(1)
  expect(status(a, '--wait', '--for', 'peers=1', '--timeout', '20s').code).toBe(0)
  expect(ask(a, 'http://127.0.0.1:8081/readyz')).toEqual({ code: 200, body: 'flanneld is ready\n' })
  expect(ask(a, 'http://127.0.0.1:8081/metrics').code).toBe(404)

  // Nothing listens to all the world: the tunnel on the underlay's address, and what was asked for on loopback.
  expect(listeners(a, 'udp')).toContain('192.0.2.1:8472')
  expect(listeners(a, 'udp').filter((place) => !place.startsWith('192.0.2.1:'))).toEqual([])
  expect(listeners(a, 'tcp')).toEqual(['127.0.0.1:8081', '127.0.0.1:9401'])

  const there = other.status!.node!.overlayAddress
  // Asks three times and not once more. It may not wait for the last answer, and a packet is counted after it was handed
  // over.
  execFileSync('ip', ['netns', 'exec', a.namespace, 'ping', '-c', '3', '-i', '0.1', '-W', '5', there])
  const traffic = { receivedPackets: 3, sentPackets: 3 }
  await expect
    .poll(() => JSON.parse(status(a, '-o', 'json').out), { timeout: LIMIT_MS })
    .toMatchObject({
      ...{ daemon: 'running', ready: true, warnings: [] },
      status: { peers: [{ state: 'active', traffic }] },
    })
  const { body } = ask(a, 'http://127.0.0.1:9401/metrics')
  const value = (series: string) =>
    Number(
      body
        .split('\n')
        .find((line) => line.startsWith(series))
        ?.split(' ')
        .at(-1),
    )
  expect(value('flannelette_packets_total{direction="outbound",side="underlay"}')).toBeGreaterThanOrEqual(3)
  expect(value('flannelette_peer_last_receive_timestamp_seconds{node="192.0.2.2"}')).toBeGreaterThan(
    Date.now() / 1000 - 60,
  )
  expect(value('flannelette_store_requests_total{operation="acquire",result="ok"}')).toBe(1)
  expect(value('flannelette_forwarding_entries')).toBe(1)

  await daemon.end('SIGKILL')
  expect(status(a)).toMatchObject({ code: 4, out: expect.stringContaining('192.0.2.1 not answering') })
})

test('systemd is told when the node is ready, how it is, that it lives, and that it stops; a reload ends nothing', async () => {
  const [host] = twoHosts()
  const path = join(host.stateDirectory, '..', 'notify')
  const received = datagramReceiver(path)
  const daemon = new RunningDaemon(host, [
    'env',
    `NOTIFY_SOCKET=${path}`,
    'WATCHDOG_USEC=1000000',
    ...daemonWords(host),
  ])
  const told: string[] = []
  await expect.poll(() => told.push(...received()) && told, { timeout: LIMIT_MS }).toContain('READY=1')
  await expect.poll(() => told.push(...received()) && told, { timeout: LIMIT_MS }).toContain('WATCHDOG=1')
  process.kill(daemon.pid, 'SIGHUP')
  await expect.poll(() => daemon.output, { timeout: LIMIT_MS }).toContain('"event":"reload"')
  expect((await daemon.end('SIGTERM')).exitCode).toBe(0)
  told.push(...received())
  const signs = told.filter((line) => line !== 'WATCHDOG=1')
  expect(signs[0]).toMatch(/^STATUS=starting: no lease yet/)
  expect(signs.indexOf('READY=1')).toBeGreaterThan(0)
  expect(told.join('\n')).toMatch(/STATUS=ready: 10\.244\.\d+\.0\/24, 0 peers, \d+ packets dropped/)
  expect(signs.at(-1)).toBe('STOPPING=1')
})

test.each([
  [
    [],
    /^<3>flannelette: unknown option '--etcd-endpoint' \(Did you mean --etcd-endpoints\?\); see flannelette run --help\n$/,
  ],
  [['--log-format=json'], /^<3>\{"level":"fatal"[^\n]*"code":"usage"[^\n]*unknown option '--etcd-endpoint'[^\n]*\}\n$/],
])('under systemd a start with %j that fails is an error in the journal, in one line', (words, line) => {
  const path = join(temporaryDirectory(), 'journal')
  const journal = openSync(path, 'w')
  const { dev, ino } = fstatSync(journal)
  const env = { ...process.env, JOURNAL_STREAM: `${dev}:${ino}` }
  const argv = [mainProgram(), 'run', ...words, '--etcd-endpoint=http://192.0.2.9:2379']
  const { status: code } = spawnSync(process.execPath, argv, { env, stdio: ['ignore', 'ignore', journal] })
  closeSync(journal)
  expect([code, readFileSync(path, 'utf8')]).toEqual([2, expect.stringMatching(line)])
})

test('a port that is taken is a start that fails, before the lease is taken', async () => {
  const [host, other] = twoHosts()
  const first = startDaemon(other, PORTS)
  await expect.poll(() => ask(other, 'http://127.0.0.1:8081/healthz').code, { timeout: LIMIT_MS }).toBe(200)
  const second = new RunningDaemon(other, daemonWords({ ...host, namespace: other.namespace }, PORTS))
  expect(await second.exited()).toBe(1)
  expect(second.told.join()).toMatch(/127\.0\.0\.1:\d+ cannot be listened on.*--healthz-port/)
  await first.end('SIGTERM')
})
