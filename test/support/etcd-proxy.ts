// A wire between a store and its etcd that tests can cut, hold and join again, and that knows when nothing moves on it.
import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'

/**
 * The wire counts as quiet after so many looks without a byte between them. Looks, not time: a process that got none has
 * not read what came meanwhile.
 */
const QUIET_LOOKS = 7
const LOOK_MS = 5

export class EtcdProxy {
  readonly #target: number
  readonly #sockets = new Set<Socket>()
  #server: Server | null = null
  #port = 0
  #moved = false
  #held = false
  /** Connections made so far. */
  connections = 0

  private constructor(target: number) {
    this.#target = target
  }

  /** To a port of loopback. */
  static async open(target: number): Promise<EtcdProxy> {
    const proxy = new EtcdProxy(target)
    proxy.#listen()
    await once(proxy.#server!, 'listening')
    proxy.#port = (proxy.#server!.address() as { port: number }).port
    return proxy
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`
  }

  /** Breaks every connection; new ones are refused. */
  cut(): void {
    this.#server?.close()
    this.#server = null
    this.breakConnections()
  }

  /** Breaks every connection; new ones succeed. */
  breakConnections(): void {
    for (const socket of this.#sockets) socket.destroy()
    this.#sockets.clear()
  }

  join(): void {
    this.#held = false
    if (this.#server === null) this.#listen()
  }

  /** Nothing passes any more, though everything stays connected. */
  hold(): void {
    this.#held = true
  }

  /** Resolves when nothing has moved for a while. */
  async quiet(): Promise<void> {
    for (let looks = 0; looks < QUIET_LOOKS; looks++) {
      this.#moved = false
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS))
      if (this.#moved) looks = -1
    }
  }

  #listen(): void {
    this.#server = createServer((near) => {
      this.connections++
      this.#moved = true
      const far = connect(this.#target, '127.0.0.1')
      this.#pass(near, far)
      this.#pass(far, near)
    })
    this.#server.on('error', () => {})
    this.#server.listen(this.#port, '127.0.0.1')
  }

  #pass(from: Socket, to: Socket): void {
    this.#sockets.add(from)
    from.setNoDelay(true)
    from.on('data', (bytes) => {
      this.#moved = true
      if (!this.#held) to.write(bytes)
    })
    from.on('error', () => {})
    from.on('close', () => {
      this.#sockets.delete(from)
      to.destroy()
    })
  }
}
