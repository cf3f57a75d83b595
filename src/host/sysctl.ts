// Kernel settings below /proc/sys. Paths are given with slashes: interface names hold dots.
import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { type InNamespace, run } from './command.ts'

/** Writes a setting. @throws FlanneletteError `host-command`, or the file system's error in the own namespace */
export async function writeSetting(path: string, value: string | number, where: InNamespace = {}): Promise<void> {
  if (where.namespace === undefined) await writeFile(`/proc/sys/${path}`, `${value}\n`)
  else await run(['tee', `/proc/sys/${path}`], { ...where, input: `${value}\n` })
}

/** Whether the kernel has IPv6: not when it was built without, started with `ipv6.disable=1`, or lacks the module. */
export function kernelHasIpv6(): boolean {
  return existsSync('/proc/sys/net/ipv6')
}
