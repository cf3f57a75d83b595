// A real etcd for tests: one member or several, on loopback or in network namespaces, with TLS and users where a test
// wants them. Data lies in memory, since tests do not wait for disks.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { vi } from 'vitest'
import { inNamespace } from '../../src/host/command.ts'

const START_LIMIT_MS = 60_000
/** Of etcdctl: for a server that is there, and for the question whether it is. */
const PATIENT = ['--command-timeout=20s', '--dial-timeout=10s']
const CURIOUS = ['--command-timeout=2s', '--dial-timeout=1s']
/** Ports below those that the kernel gives to connections (ip_local_port_range), a share of them for each process. */
const FIRST_FREE_PORT = 10_000
const FREE_PORTS = 20_000
const PORTS_OF_A_PROCESS = 100
/**
 * Of this file's servers in namespaces. Files run side by side with the same addresses, and a daemon refuses to be a
 * second one by the same address in the same store, which is named by its address and port, on one machine.
 */
export const CLIENT_PORT = 20_000 + (process.pid % 10_000)

export interface TlsFiles {
  readonly ca: string
  readonly cert: string
  readonly key: string
}

export interface EtcdOptions {
  readonly name?: string
  /** Network namespace; the test's own without one. */
  readonly namespace?: string
  readonly address?: string
  /** Free ones of the test's own namespace when left out. */
  readonly clientPort?: number
  readonly peerPort?: number
  /** `name=http://address:port` of every member; itself alone when left out. */
  readonly cluster?: string
  readonly tls?: TlsFiles
  /** Clients must show a certificate of the CA. */
  readonly clientAuth?: boolean
  readonly more?: readonly string[]
}

export class EtcdServer {
  readonly url: string
  readonly name: string
  readonly #words: readonly string[]
  readonly #options: EtcdOptions
  readonly #directory: string
  #child: ChildProcess | null = null
  #output = ''

  private constructor(options: EtcdOptions & { clientPort: number; peerPort: number }) {
    const { address = '127.0.0.1', tls, clientPort, peerPort } = options
    this.#options = options
    this.name = options.name ?? 'one'
    this.#directory = mkdtempSync('/dev/shm/flannelette-etcd-')
    this.url = `${tls === undefined ? 'http' : 'https'}://${address}:${clientPort}`
    const peer = `http://${address}:${peerPort}`
    this.#words = [
      ...['etcd', '--name', this.name, '--data-dir', this.#directory, '--logger', 'zap', '--log-level', 'warn'],
      ...['--listen-client-urls', this.url, '--advertise-client-urls', this.url],
      ...['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer],
      ...['--initial-cluster', options.cluster ?? `${this.name}=${peer}`],
      ...(tls === undefined ? [] : ['--cert-file', tls.cert, '--key-file', tls.key, '--trusted-ca-file', tls.ca]),
      ...(options.clientAuth === true ? ['--client-cert-auth'] : []),
      ...(options.more ?? []),
    ]
  }

  /** Starts a member; `stop` it, or use `onTestFinished`. It answers only once most of its cluster runs. */
  static async launch(options: EtcdOptions = {}): Promise<EtcdServer> {
    const [clientPort, peerPort] = [options.clientPort ?? (await freePort()), options.peerPort ?? (await freePort())]
    const server = new EtcdServer({ ...options, clientPort, peerPort })
    server.run()
    return server
  }

  /** A member that answers. */
  static async start(options: EtcdOptions = {}): Promise<EtcdServer> {
    const server = await EtcdServer.launch(options)
    try {
      await server.ready()
      return server
    } catch (error) {
      await server.stop()
      throw error
    }
  }

  get pid(): number {
    return this.#child?.pid ?? 0
  }

  /** Starts the process; what it had stored before is there. */
  run(): void {
    const argv = this.#at(this.#words)
    this.#child = spawn(argv[0]!, argv.slice(1), { stdio: ['ignore', 'ignore', 'pipe'] })
    this.#child.stderr!.setEncoding('utf8').on('data', (text: string) => {
      this.#output = (this.#output + text).slice(-4000)
    })
  }

  async ready(): Promise<void> {
    const look = () => {
      if (this.#child?.exitCode !== null) throw new Error(`etcd ended: ${this.#output}`)
      try {
        this.#ask(CURIOUS, 'endpoint', 'health')
        return true
      } catch (error) {
        // A user or a certificate is asked for: it is there.
        return /user name|certificate/.test(String((error as { stderr?: unknown }).stderr))
      }
    }
    await vi.waitUntil(look, { timeout: START_LIMIT_MS, interval: 30 })
  }

  /** Runs etcdctl against this member and gives what it printed. */
  ctl(...words: string[]): string {
    return this.#ask(PATIENT, ...words)
  }

  #ask(limits: readonly string[], ...words: string[]): string {
    const { tls } = this.#options
    const trust = tls === undefined ? [] : ['--cacert', tls.ca, '--cert', tls.cert, '--key', tls.key]
    const argv = this.#at(['etcdctl', '--endpoints', this.url, ...limits, ...trust, ...words])
    const env = { ...process.env, ETCDCTL_API: '3' }
    return execFileSync(argv[0]!, argv.slice(1), { encoding: 'utf8', env, stdio: ['ignore', 'pipe', 'pipe'] })
  }

  /** The revision of the whole store. */
  get revision(): number {
    const [status] = JSON.parse(this.ctl('endpoint', 'status', '-w', 'json')) as {
      Status: { header: { revision: number } }
    }[]
    return status!.Status.header.revision
  }

  freeze(): void {
    process.kill(this.pid, 'SIGSTOP')
  }

  thaw(): void {
    process.kill(this.pid, 'SIGCONT')
  }

  /** Ends the process, its data stay. */
  async end(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#child
    if (child === null) return
    this.#child = null
    if (child.exitCode !== null || child.signalCode !== null) return
    child.kill('SIGCONT')
    child.kill(signal)
    await once(child, 'exit')
  }

  async stop(): Promise<void> {
    await this.end()
    rmSync(this.#directory, { recursive: true, force: true })
  }

  #at(words: readonly string[]): readonly string[] {
    return this.#options.namespace === undefined ? words : inNamespace(this.#options.namespace, words)
  }
}

/** Starts three members that answer, at these places. */
export async function startCluster(
  places: readonly { readonly namespace?: string; readonly address: string }[],
): Promise<EtcdServer[]> {
  const members = await Promise.all(
    places.map(async (place, index) => ({
      ...place,
      name: `m${index}`,
      clientPort: place.namespace === undefined ? await freePort() : CLIENT_PORT,
      peerPort: place.namespace === undefined ? await freePort() : 2380,
    })),
  )
  const cluster = members.map(({ name, address, peerPort }) => `${name}=http://${address}:${peerPort}`).join(',')
  const servers = await Promise.all(members.map((member) => EtcdServer.launch({ ...member, cluster })))
  await Promise.all(servers.map((server) => server.ready()))
  return servers
}

let portsGiven = 0

/** A TCP port of loopback that nobody listens on, and that no connection and no other process of the tests takes. */
export async function freePort(): Promise<number> {
  for (;;) {
    const within = (process.pid * PORTS_OF_A_PROCESS) % FREE_PORTS
    const port = FIRST_FREE_PORT + within + (portsGiven++ % PORTS_OF_A_PROCESS)
    const server = createServer().listen(port, '127.0.0.1')
    try {
      await once(server, 'listening')
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') continue
      throw error
    }
    server.close()
    await once(server, 'close')
    return port
  }
}
