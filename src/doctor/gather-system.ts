// The part of doctor's facts that is about kernel, Node and permissions.
import { accessSync, closeSync, constants, existsSync, openSync, readFileSync, statfsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { release } from 'node:os'
import { mayConfigureNetwork } from '../host/capability.ts'
import { attempt, firstLine } from '../host/command.ts'
import type { Facts, Looked, VxlanSupport } from './facts.ts'

type SystemFacts = Pick<
  Facts,
  'root' | 'kernelRelease' | 'nodeVersion' | 'koffiProblem' | 'tunProblem' | 'vxlan' | 'mayConfigure' | 'openFileLimit'
>

/** `daemon`: its process, `null` without one: then doctor's own rights are told. */
export async function readSystem(daemon: number | null): Promise<SystemFacts> {
  const process_ = daemon ?? 'self'
  return {
    root: process.geteuid?.() === 0,
    kernelRelease: release(),
    nodeVersion: process.versions.node,
    koffiProblem: await koffiProblem(),
    tunProblem: tunProblem(),
    vxlan: vxlanSupport(release()),
    mayConfigure: read(`/proc/${process_}/status`, mayConfigureNetwork),
    openFileLimit: read(`/proc/${process_}/limits`, (text) => Number(/^Max open files\s+(\d+)/m.exec(text)?.[1])),
  }
}

function read<T>(path: string, parse: (text: string) => T): Looked<T> {
  try {
    return { seen: true, value: parse(readFileSync(path, 'latin1')) }
  } catch (error) {
    return { seen: false, why: (error as Error).message }
  }
}

/** Loads it in a process of its own: a library that does not fit may end the process. */
async function koffiProblem(): Promise<string> {
  try {
    const path = createRequire(import.meta.url).resolve('koffi')
    const result = await attempt([process.execPath, '-e', 'require(process.argv[1])', path], { timeoutMs: 10_000 })
    if (result.exitCode === 0) return ''
    return /^\w*Error: .*$/m.exec(result.stderr)?.[0] ?? (firstLine(result.stderr) || `exit code ${result.exitCode}`)
  } catch (error) {
    return firstLine((error as Error).message)
  }
}

/** Opening the device makes nothing: only what is asked of the descriptor would. */
function tunProblem(): string | null {
  try {
    closeSync(openSync('/dev/net/tun', constants.O_RDWR))
    return null
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? 'unknown'
  }
}

/** Below this, bytes, a state directory is as good as full. */
const LEAST_FREE = 1024 * 1024

/** Why nothing can be written into a directory, by a look at its file system; `null` when nothing speaks against it. */
export function storageProblem(directory: string): string | null {
  try {
    accessSync(directory, constants.W_OK)
    const { bavail, bsize, ffree, files } = statfsSync(directory)
    if (bavail * bsize < LEAST_FREE) return 'its disk is full'
    return files > 0 && ffree === 0 ? 'its file system has no inode left' : null
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return null
    return code === 'EROFS' ? 'it is on a read-only file system' : `it cannot be written to (${code})`
  }
}

function vxlanSupport(kernelRelease: string): VxlanSupport {
  if (existsSync('/sys/module/vxlan')) return 'present'
  const directory = `/lib/modules/${kernelRelease}`
  const lists = (file: string) => /\/vxlan\.ko/.test(readFileSync(`${directory}/${file}`, 'latin1'))
  try {
    accessSync(directory)
    if (lists('modules.builtin')) return 'present'
    return lists('modules.dep') ? 'loadable' : 'absent'
  } catch {
    // In a container the host's modules are out of sight.
    return 'unknown'
  }
}
