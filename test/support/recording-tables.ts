// Kernel tables that remember what was run on them and hold only the routes that a test puts there.
import type { BatchFailure, IpTool } from '../../src/host/ip.ts'
import type { KernelTables } from '../../src/host/kernel-tables.ts'
import type { PresentRows } from '../../src/host/kernel-vtep-plan.ts'

/** Tables that write down every command and refuse those that `refuses` points at. */
export class RecordingTables implements KernelTables {
  readonly commands: string[] = []
  refuses: (command: string) => boolean = () => false
  readable = true
  routes: PresentRows['routes'] = []

  async read(): Promise<PresentRows> {
    if (!this.readable) throw new Error('Device "flannel.1" does not exist.')
    return { neighbors: [], fdb: [], routes: this.routes }
  }

  async apply(tool: IpTool, commands: readonly string[]): Promise<BatchFailure[]> {
    this.commands.push(...commands.map((command) => `${tool} ${command}`))
    return commands.flatMap((command, index) =>
      this.refuses(command) ? [{ index, message: 'No buffer space available' }] : [],
    )
  }

  take(): string[] {
    return this.commands.splice(0)
  }
}
