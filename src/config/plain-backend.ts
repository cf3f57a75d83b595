// Backends without a tunnel of ours: `host-gw`, where routes connect the nodes, `alloc`, which is a lease and nothing
// else, and `extension`, where the operator's commands connect them.
import { asConfigError } from './config-error.ts'
import { type ExtensionCommands, extensionBackend } from './extension-commands.ts'
import type { NetworkConfig } from './network-config.ts'

export type PlainBackend =
  | { readonly type: 'host-gw' }
  | { readonly type: 'alloc' }
  | { readonly type: 'extension'; readonly commands: ExtensionCommands }

export interface PlainChoice {
  readonly backend: PlainBackend
  readonly notices: readonly string[]
}

/** `null` for every other type. @throws FlanneletteError `config-invalid` */
export function plainBackend({ backendType, backend }: NetworkConfig): PlainChoice | null {
  if (backendType === 'host-gw') return { backend: { type: 'host-gw' }, notices: [] }
  if (backendType === 'alloc') return { backend: { type: 'alloc' }, notices: [] }
  if (backendType !== 'extension' || backend === null) return null
  const { commands, notices } = asConfigError(() => extensionBackend(backend), 'Backend')
  return { backend: { type: 'extension', commands }, notices }
}
