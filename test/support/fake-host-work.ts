// Rules and routes of a host that has none: remembers what it was asked for.
import type { HostWork } from '../../src/daemon/agent-options.ts'
import type { LocalVtep } from '../../src/host/dataplane.ts'
import type { FirewallMode } from '../../src/host/firewall/firewall.ts'

export class FakeHostWork implements HostWork {
  readonly calls: string[] = []
  lacking: string | null = null
  /** A start waits for this. */
  gate: Promise<void> = Promise.resolve()

  async start(local: LocalVtep, mode: FirewallMode): Promise<void> {
    this.calls.push(`start ${local.deviceName} ${mode}`)
    await this.gate
  }

  async stop(mode: 'keep' | 'remove'): Promise<void> {
    this.calls.push(`stop ${mode}`)
  }

  lookNow(): void {
    this.calls.push('look')
  }

  problem(): string | null {
    return this.lacking
  }
}
