// Kernel settings below /proc/sys. Paths are given with slashes: interface names hold dots.
import { readFile, writeFile } from 'node:fs/promises'
import { type CommandOptions, run } from './command.ts'

type InNamespace = Pick<CommandOptions, 'namespace'>

/** Reads a setting (`net/ipv4/ip_forward`), `null` when this kernel does not have it. */
export async function readSetting(path: string, where: InNamespace = {}): Promise<string | null> {
  try {
    if (where.namespace === undefined) return (await readFile(`/proc/sys/${path}`, 'utf8')).trim()
    return (await run(['cat', `/proc/sys/${path}`], where)).trim()
  } catch {
    return null
  }
}

/** Writes a setting. @throws FlanneletteError `host-command`, or the file system's error in the own namespace */
export async function writeSetting(path: string, value: string | number, where: InNamespace = {}): Promise<void> {
  if (where.namespace === undefined) await writeFile(`/proc/sys/${path}`, `${value}\n`)
  else await run(['tee', `/proc/sys/${path}`], { ...where, input: `${value}\n` })
}

/**
 * Reverse-path filter in force on an interface: 0 off, 1 strict, 2 loose. The kernel takes the larger of `all` and the
 * interface's own value (ip-sysctl, rp_filter). Strict is fine as long as the route for the whole overlay network
 * leads into the overlay device, which `configureOverlayLink` sees to before the first packet.
 */
export async function reversePathFilter(device: string, where: InNamespace = {}): Promise<number> {
  const values = await Promise.all(['all', device].map((name) => readSetting(`net/ipv4/conf/${name}/rp_filter`, where)))
  return Math.max(...values.map((value) => Number(value ?? 0)))
}
