// Telling systemd how it stands, by the protocol of sd_notify(3): lines in a datagram to the socket that NOTIFY_SOCKET
// names. Says nothing where there is none. What cannot be told is not worth a failure.
import { type DatagramSender, openDatagramSender } from '../../dataplane/index.ts'
import type { Log } from '../log.ts'

export class SystemdNotifier {
  readonly #sender: DatagramSender
  readonly #log: Log
  #status = ''
  #failed = false
  #watchdog: NodeJS.Timeout | null = null

  private constructor(sender: DatagramSender, log: Log) {
    this.#sender = sender
    this.#log = log
  }

  /**
   * `null` when this process was not started by a service manager that wants to be told. The variables are taken out of
   * `env`: programs that we start must not speak for us.
   */
  static async fromEnvironment(env: NodeJS.ProcessEnv, log: Log): Promise<SystemdNotifier | null> {
    const { NOTIFY_SOCKET: path = '', WATCHDOG_USEC: period = '', WATCHDOG_PID: pid = `${process.pid}` } = env
    for (const name of ['NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID']) delete env[name]
    if (!/^[/@]./.test(path)) return null
    const sender = await openDatagramSender(path)
    if (typeof sender === 'number') {
      log.warn('systemd-unreachable', `no socket to tell systemd anything (errno ${sender})`)
      return null
    }
    const notifier = new SystemdNotifier(sender, log)
    if (Number(pid) === process.pid) notifier.#watch(Number(period) / 1000)
    return notifier
  }

  /** The start is through. */
  ready(): void {
    this.#tell('READY=1')
  }

  /** One line for `systemctl status`. */
  status(line: string): void {
    if (line === this.#status) return
    this.#status = line
    this.#tell(`STATUS=${line.replaceAll('\n', ' ')}`)
  }

  stopping(): void {
    this.#tell('STOPPING=1')
  }

  close(): void {
    if (this.#watchdog !== null) clearInterval(this.#watchdog)
    this.#sender.close()
  }

  /** A sign of life at twice the rate that is asked for: from the main thread, which is what could hang. */
  #watch(periodMs: number): void {
    if (!(periodMs >= 2)) return
    this.#watchdog = setInterval(() => this.#tell('WATCHDOG=1'), periodMs / 2)
    this.#watchdog.unref()
  }

  #tell(line: string): void {
    const errno = this.#sender.send(line)
    if (errno !== 0 && !this.#failed) this.#log.warn('systemd-unreachable', `systemd is not told (errno ${errno})`)
    this.#failed = errno !== 0
  }
}
