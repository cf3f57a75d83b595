// /healthz, /readyz and /metrics: status codes for machines, words for people, on the listeners that were asked for.
import { createServer } from 'node:http'
import { expect, onTestFinished, test } from 'vitest'
import type { Health } from '../../../src/daemon/health.ts'
import { type Listener, listenersOf, ProbeServer } from '../../../src/daemon/probe-server.ts'

const HERE = '127.0.0.1'
const GOOD: Health = { live: true, ready: true, checks: [{ name: 'lease', ok: true, about: 'held' }], notes: [] }
const STARTING: Health = {
  ...{ live: true, ready: false, notes: ['the store is away'] },
  checks: [
    { name: 'event-loop', ok: true, about: 'in time' },
    { name: 'lease', ok: false, about: 'none yet' },
  ],
}

async function serve(health: Health, listener: Partial<Listener> = {}) {
  const server = new ProbeServer({
    listeners: [{ host: HERE, port: 0, metrics: true, ...listener }],
    health: () => health,
    metrics: async () => ({ type: 'text/plain; version=0.0.4', text: 'a 1\n' }),
  })
  await server.start()
  onTestFinished(() => server.stop())
  return async (path: string, method = 'GET') => {
    const response = await fetch(`http://${HERE}:${server.ports[0]}${path}`, { method })
    return { status: response.status, body: await response.text(), type: response.headers.get('content-type') }
  }
}

test('a node that is well answers 200 in the words of flannel, by any method', async () => {
  const ask = await serve(GOOD)
  expect(await ask('/healthz')).toMatchObject({ status: 200, body: 'flanneld is running\n' })
  expect(await ask('/readyz')).toMatchObject({ status: 200, body: 'flanneld is ready\n' })
  expect(await ask('/healthz', 'POST')).toMatchObject({ status: 200 })
  expect(await ask('/healthz', 'HEAD')).toMatchObject({ status: 200, body: '' })
})

test('a node that is not ready answers 503, and says which check failed', async () => {
  const ask = await serve(STARTING)
  expect(await ask('/readyz')).toMatchObject({
    status: 503,
    body: 'flanneld is not ready yet\n[-] lease: none yet\n[!] the store is away\n',
  })
  expect(await ask('/healthz')).toMatchObject({ status: 200, body: 'flanneld is running\n' })
})

test('?verbose lists all checks, ?format=json gives them to machines', async () => {
  const ask = await serve(STARTING)
  expect((await ask('/readyz?verbose')).body).toContain('[+] event-loop: in time\n[-] lease: none yet\n')
  const { body, status } = await ask('/readyz?format=json')
  expect(status).toBe(503)
  expect(JSON.parse(body)).toMatchObject({ status: 'flanneld is not ready yet', ready: false, checks: STARTING.checks })
})

test('a main thread that hangs fails both', async () => {
  const ask = await serve({ ...STARTING, live: false })
  expect((await ask('/healthz')).status).toBe(503)
  expect((await ask('/readyz')).status).toBe(503)
})

test('metrics are given where they were asked for, and nowhere else', async () => {
  expect(await (await serve(GOOD))('/metrics')).toEqual({
    ...{ status: 200, body: 'a 1\n', type: 'text/plain; version=0.0.4' },
  })
  expect(await (await serve(GOOD, { metrics: false }))('/metrics')).toMatchObject({ status: 404 })
  expect(await (await serve(GOOD))('/')).toMatchObject({ status: 404 })
})

test('one listener for both when they have one address; none when neither is wanted', () => {
  const health = { host: '0.0.0.0', port: 8081 }
  const metrics = { host: HERE, port: 9401 }
  expect(listenersOf(null, null)).toEqual([])
  expect(listenersOf(health, null)).toEqual([{ ...health, metrics: false }])
  expect(listenersOf(null, metrics)).toEqual([{ ...metrics, metrics: true }])
  expect(listenersOf(health, metrics)).toEqual([
    { ...health, metrics: false },
    { ...metrics, metrics: true },
  ])
  expect(listenersOf(metrics, metrics)).toEqual([{ ...metrics, metrics: true }])
})

test('a port that is taken is a failed start, with a way out', async () => {
  const other = createServer()
  await new Promise<void>((resolve) => other.listen(0, HERE, resolve))
  onTestFinished(() => void other.close())
  const { port } = other.address() as { port: number }
  await expect(serve(GOOD, { port })).rejects.toMatchObject({
    code: 'port-busy',
    remedy: expect.stringContaining('--healthz-port'),
  })
})
