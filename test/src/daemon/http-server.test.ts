// The HTTP servers of the daemon under clients that mean no good: they get an answer or are hung up on, and the next one is served.
import { once } from 'node:events'
import { connect } from 'node:net'
import fc from 'fast-check'
import { expect, onTestFinished, test } from 'vitest'
import { type Answer, createHttpServer, HTTP_LIMITS, type HttpLimits } from '../../../src/daemon/http-server.ts'

const HELLO: Answer = (url, response) => void response.end(`hello ${url.pathname}`)

async function serve(answer: Answer, limits: Partial<HttpLimits> = {}) {
  const server = createHttpServer(answer, { ...HTTP_LIMITS, ...limits })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as { port: number }
  /** Sends bytes, hangs up, and resolves with what came back until the server hung up as well. */
  const send = async (bytes: Buffer | string): Promise<string> => {
    const socket = connect({ port, host: '127.0.0.1' })
    socket.end(bytes)
    return read(socket)
  }
  const clients = () => new Promise((resolve) => server.getConnections((_, count) => resolve(count)))
  return { port, send, clients }
}

async function read(socket: ReturnType<typeof connect>): Promise<string> {
  let text = ''
  socket.on('data', (more) => {
    text += more.toString('latin1')
  })
  socket.on('error', () => {})
  await new Promise((resolve) => socket.on('close', resolve))
  return text
}

const request = (target: string) => `GET ${target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`

test('a target that is no path is refused, and the server goes on', async () => {
  const { send } = await serve(HELLO)
  for (const target of ['//', 'http://[', '///////', 'http://a:b:c/']) {
    expect(await send(request(target)), target).toContain('400 Bad Request')
  }
  expect(await send(request('*'))).toContain('200 OK')
  expect(await send(request('/x'))).toContain('hello /x')
})

test('no bytes of a client end the server', async () => {
  const { send } = await serve(HELLO)
  const target = fc.string({ unit: 'binary-ascii', maxLength: 40 })
  const bytes = fc.oneof(
    target.map((text) => Buffer.from(request(text), 'latin1')),
    fc.uint8Array({ maxLength: 200 }).map((array) => Buffer.from(array)),
  )
  await fc.assert(
    fc.asyncProperty(bytes, async (sent) => void (await send(sent))),
    { numRuns: 200 },
  )
  expect(await send(request('/x'))).toContain('hello /x')
})

test('an answer that fails, at once or later, is a 500 that says why', async () => {
  const failing = await serve((url) => {
    if (url.pathname === '/now') throw new Error('not now')
    return Promise.reject(new Error('not later'))
  })
  expect(await failing.send(request('/now'))).toMatch(/500[\s\S]*not now/)
  expect(await failing.send(request('/later'))).toMatch(/500[\s\S]*not later/)
})

test('a request that does not end is refused', async () => {
  const { port } = await serve(HELLO, { requestMs: 100 })
  const slow = connect({ port, host: '127.0.0.1' })
  slow.write('GET / HTTP/1.1\r\nHost:')
  expect(await read(slow)).toContain('408 Request Timeout')
})

test('whoever takes nothing of an answer is hung up on', async () => {
  const large = Buffer.alloc(32 * 1024 * 1024)
  let asked = 0
  const answer: Answer = (_, response) => {
    asked++
    response.end(large)
  }
  const { port, clients } = await serve(answer, { silenceMs: 100 })
  const deaf = connect({ port, host: '127.0.0.1' })
  deaf.on('error', () => {})
  deaf.pause()
  deaf.write(request('/'))
  await expect.poll(() => asked).toBe(1)
  await expect.poll(clients).toBe(0)
  deaf.destroy()
})

test('one client more than there is room for is hung up on, and served when others have left', async () => {
  const { port, send } = await serve(HELLO, { connections: 2 })
  const held = [connect({ port, host: '127.0.0.1' }), connect({ port, host: '127.0.0.1' })]
  await Promise.all(held.map((socket) => once(socket, 'connect')))
  expect(await send(request('/x'))).toBe('')
  for (const socket of held) socket.destroy()
  await expect.poll(() => send(request('/x'))).toContain('hello /x')
})
