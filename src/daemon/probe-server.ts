// What the outside asks a node over HTTP: /healthz and /readyz as flannel answers them, and /metrics. Any method,
// status codes for machines, checks in words for people: failed ones always, all with ?verbose, as JSON with
// ?format=json.
import type { Server, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { ListenAddress } from '../config/options.ts'
import { FlanneletteError } from '../errors.ts'
import type { Health } from './health.ts'
import { createHttpServer, PLAIN_TEXT } from './http-server.ts'

export interface Listener extends ListenAddress {
  /** Whether /metrics is answered here. */
  readonly metrics: boolean
}

/** Where to listen: health and metrics on one listener when they have one address. Empty when both are off. */
export function listenersOf(health: ListenAddress | null, metrics: ListenAddress | null): Listener[] {
  if (metrics === null) return health === null ? [] : [{ ...health, metrics: false }]
  const isOne = health?.host === metrics.host && health.port === metrics.port
  const first = health === null || isOne ? [] : [{ ...health, metrics: false }]
  return [...first, { ...metrics, metrics: true }]
}

export interface ProbeOptions {
  readonly listeners: readonly Listener[]
  readonly health: () => Health
  readonly metrics: () => Promise<{ readonly type: string; readonly text: string }>
}

export class ProbeServer {
  readonly #options: ProbeOptions
  readonly #servers: Server[] = []

  constructor(options: ProbeOptions) {
    this.#options = options
  }

  /** Listens everywhere. @throws FlanneletteError `port-busy` when that is impossible */
  async start(): Promise<void> {
    for (const listener of this.#options.listeners) {
      const server = createHttpServer((url, response) => this.#answer(listener, url, response))
      this.#servers.push(server)
      await listen(server, listener)
    }
  }

  /** Where it listens, in the order of the options: for who asked for any free port. */
  get ports(): number[] {
    return this.#servers.map((server) => (server.address() as AddressInfo).port)
  }

  stop(): void {
    for (const server of this.#servers) {
      server.close()
      server.closeAllConnections()
    }
  }

  async #answer(listener: Listener, url: URL, response: ServerResponse): Promise<void> {
    if (url.pathname === '/healthz') {
      const health = this.#options.health()
      tell(url, response, health.live, health.live ? 'flanneld is running' : 'flanneld is stuck', health)
    } else if (url.pathname === '/readyz') {
      const health = this.#options.health()
      tell(url, response, health.ready, health.ready ? 'flanneld is ready' : 'flanneld is not ready yet', health)
    } else if (url.pathname === '/metrics' && listener.metrics) {
      const { type, text } = await this.#options.metrics()
      response.writeHead(200, { 'content-type': type }).end(text)
    } else {
      const there = listener.metrics ? '/healthz, /readyz and /metrics' : '/healthz and /readyz'
      response.writeHead(404, PLAIN_TEXT).end(`there are ${there} here\n`)
    }
  }
}

/** flannel's words first, for those who look at them. */
function tell(url: URL, response: ServerResponse, good: boolean, words: string, health: Health): void {
  const status = good ? 200 : 503
  if (url.searchParams.get('format') === 'json') {
    const body = `${JSON.stringify({ status: words, ...health })}\n`
    response.writeHead(status, { 'content-type': 'application/json' }).end(body)
    return
  }
  const isVerbose = url.searchParams.has('verbose')
  const checks = health.checks.filter(({ ok }) => isVerbose || !(good || ok))
  const lines = checks.map(({ name, ok, about }) => `[${ok ? '+' : '-'}] ${name}: ${about}\n`)
  const notes = isVerbose || !good ? health.notes.map((note) => `[!] ${note}\n`) : []
  response.writeHead(status, PLAIN_TEXT).end([`${words}\n`, ...lines, ...notes].join(''))
}

function listen(server: Server, { host, port }: ListenAddress): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (cause) => {
      const message = `${host}:${port} cannot be listened on: ${cause.message}`
      const remedy = 'choose others with --healthz-ip, --healthz-port and --metrics-address'
      reject(new FlanneletteError('port-busy', message, { remedy, cause }))
    })
    server.listen(port, host, resolve)
  })
}
