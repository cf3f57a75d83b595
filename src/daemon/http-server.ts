// What the daemon's two HTTP servers (probes, local socket) have in common: nothing that a client sends, or does not
// send, may end the daemon or fill it.
import { createServer, type Server, type ServerResponse } from 'node:http'

export const PLAIN_TEXT = { 'content-type': 'text/plain; charset=utf-8' }

/** How often clients are looked at that are too slow, milliseconds. */
const LOOK_MS = 2000

export interface HttpLimits {
  /** How long a request may take to come whole, milliseconds. */
  readonly requestMs: number
  /** How long a client may take nothing of its answer before it is hung up on, milliseconds; 0 for ever. */
  readonly silenceMs: number
  /** Clients at the same time: of the files that the daemon may open, most are not for them. */
  readonly connections: number
}

export const HTTP_LIMITS: HttpLimits = { requestMs: 10_000, silenceMs: 10_000, connections: 500 }

/** Answers a request by its URL, whatever its method. What it throws is told to the client with status 500. */
export type Answer = (url: URL, response: ServerResponse) => void | Promise<void>

/** A server that does not listen yet. */
export function createHttpServer(answer: Answer, limits: HttpLimits = HTTP_LIMITS): Server {
  const connectionsCheckingInterval = Math.min(LOOK_MS, limits.requestMs)
  const server = createServer({ connectionsCheckingInterval }, (request, response) => {
    request.resume()
    const url = urlOf(request.url)
    if (url === null) {
      response.writeHead(400, PLAIN_TEXT).end('this is no path\n')
      return
    }
    // In a promise, so that what is thrown at once and what is thrown later come out at one place.
    new Promise((resolve) => resolve(answer(url, response))).catch((error: Error) => fail(response, error))
  })
  server.headersTimeout = limits.requestMs
  server.requestTimeout = limits.requestMs
  server.timeout = limits.silenceMs
  server.maxConnections = limits.connections
  // Of a server that listens: one more client than there are files left. The next one may have more luck.
  server.on('error', () => {})
  return server
}

/** `null` for what is no path, such as `//`, which parsers of HTTP let through. */
function urlOf(target = '/'): URL | null {
  try {
    return new URL(target, 'http://localhost')
  } catch {
    return null
  }
}

function fail(response: ServerResponse, error: Error): void {
  if (response.headersSent) response.destroy()
  else response.writeHead(500, PLAIN_TEXT).end(`${error.message}\n`)
}
