// Backends without a tunnel of ours: `host-gw`, where routes connect the nodes, `alloc`, which is a lease and nothing
// else, and `extension`, where the operator's commands connect them.
import { asConfigError, invalid } from './config-error.ts'
import { type ExtensionCommands, extensionBackend } from './extension-commands.ts'
import type { BackendType, NetworkConfig } from './network-config.ts'

export type PlainBackend =
  | { readonly type: 'host-gw' }
  | { readonly type: 'alloc' }
  | { readonly type: 'extension'; readonly commands: ExtensionCommands }

export function hasNoTunnel(type: BackendType): type is PlainBackend['type'] {
  return type === 'host-gw' || type === 'alloc' || type === 'extension'
}

/** `null` for every other type. @throws FlanneletteError `config-invalid` */
export function plainBackend({
  backendType,
  backend,
  ipv6,
}: NetworkConfig): { readonly backend: PlainBackend; readonly notices: readonly string[] } | null {
  if (backendType === 'host-gw') {
    if (ipv6 === null) return { backend: { type: 'host-gw' }, notices: [] }
    const remedy = 'set EnableIPv6 to false, or take Backend.Type "vxlan"'
    throw invalid(
      'EnableIPv6',
      'is true, but no lease names an IPv6 address of its host yet, for routes to go by',
      remedy,
    )
  }
  if (backendType === 'alloc') return { backend: { type: 'alloc' }, notices: [] }
  if (backendType !== 'extension' || backend === null) return null
  const { commands, notices } = asConfigError(() => extensionBackend(backend), 'Backend')
  return { backend: { type: 'extension', commands }, notices }
}
