// `ethtool`: offload features of a device, read and set by the names that ethtool prints.
import { attempt, commandFailure, type InNamespace, run } from './command.ts'

/** Feature → on. Short names that `ethtool -K` knows (`tx`, `tso`, `gro`) are accepted as well as the long ones. */
export type Features = Readonly<Record<string, boolean>>

/** Features of a device by their long names. @throws FlanneletteError `host-command` */
export async function readFeatures(device: string, where: InNamespace = {}): Promise<Record<string, boolean>> {
  const text = await run(['ethtool', '--json', '-k', device], where)
  const [entry] = JSON.parse(text) as Record<string, { active?: boolean } | string>[]
  const features: Record<string, boolean> = {}
  for (const [name, value] of Object.entries(entry ?? {})) {
    if (typeof value === 'object' && value.active !== undefined) features[name] = value.active
  }
  return features
}

/** Sets features in one call. @throws FlanneletteError `host-command` when the device refuses one */
export async function setFeatures(device: string, features: Features, where: InNamespace = {}): Promise<void> {
  const words = Object.entries(features).flatMap(([name, on]) => [name, on ? 'on' : 'off'])
  if (words.length === 0) return
  const argv = ['ethtool', '-K', device, ...words]
  const result = await attempt(argv, where)
  if (result.exitCode !== 0) throw commandFailure(argv, result, where.namespace)
}
