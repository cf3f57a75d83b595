// What a lab remembers between commands: one JSON file in /run, written atomically, gone after a reboot like the
// namespaces it speaks of.
import { existsSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { writeFileAtomically } from '../atomic-file.ts'
import { STATUS_FILE } from '../daemon/status-file.ts'
import { FlanneletteError } from '../errors.ts'
import { removeEmptyDirectory } from '../make-directory.ts'
import type { Fault } from './faults.ts'
import type { HostPlan, LabOptions, PodPlan } from './plan.ts'
import { identify, isAlive, type ProcessIdentity } from './process-identity.ts'

/** The files of one lab. */
export const LABS_DIRECTORY = '/run/flannelette/lab'

export interface LabHost extends Omit<HostPlan, 'subnet' | 'ipv6Subnet'> {
  /** The lease it really got, `10.244.1.0/24`; empty until its daemon is ready. */
  readonly subnet: string
  /** `null` in a lab without IPv6. */
  readonly ipv6Subnet: string | null
  readonly mtuBytes: number
  /** `null` after `fault crash`. */
  readonly daemon: ProcessIdentity | null
}

export interface LabPod extends PodPlan {
  readonly address: string
  /** `null` in a lab without IPv6. */
  readonly ipv6Address: string | null
}

export interface LabState {
  readonly version: 1
  readonly name: string
  readonly phase: 'starting' | 'up'
  /** The command that is, or was, bringing it up. */
  readonly starter: ProcessIdentity
  /** Whether the lab is meant to go with its starter; without it, it is a leftover. */
  readonly owned: boolean
  readonly options: LabOptions
  readonly switchNamespace: string | null
  readonly hosts: readonly LabHost[]
  readonly pods: readonly LabPod[]
  readonly faults: readonly Fault[]
}

export interface LabFiles {
  readonly directory: string
  readonly state: string
  readonly store: string
}

/** Where a lab keeps what is common to its hosts. */
export function labFiles(name: string): LabFiles {
  const directory = `${LABS_DIRECTORY}/${name}`
  return { directory, state: `${directory}/state.json`, store: `${directory}/store` }
}

export interface HostFiles {
  readonly directory: string
  readonly subnetFile: string
  readonly stateDirectory: string
  readonly statusFile: string
  readonly log: string
}

/** Where the daemon of one of its hosts keeps its own. */
export function hostFiles(lab: string, host: string): HostFiles {
  const directory = `${labFiles(lab).directory}/${host}`
  const stateDirectory = `${directory}/state`
  return {
    directory,
    subnetFile: `${directory}/subnet.env`,
    stateDirectory,
    statusFile: `${stateDirectory}/${STATUS_FILE}`,
    log: `${directory}/daemon.log`,
  }
}

/**
 * Takes the lab's name by making its directory with the first state in it, both at once: of two commands only one
 * succeeds, and nobody sees a lab without a state. False when the name is taken.
 */
export function claimLab(state: LabState): boolean {
  sweepHalfClaims()
  const { directory } = labFiles(state.name)
  const prepared = `${LABS_DIRECTORY}/.${state.name}-${process.pid}`
  const content = `${JSON.stringify(state, null, 2)}\n`
  writeFileAtomically(`${prepared}/state.json`, content, { mode: 0o644, durable: false })
  try {
    renameSync(prepared, directory)
    return true
  } catch (error) {
    rmSync(prepared, { recursive: true, force: true })
    if (['EEXIST', 'ENOTEMPTY'].includes((error as NodeJS.ErrnoException).code ?? '')) return false
    throw error
  }
}

/** `null` when there is none, or one that cannot be read: such a lab is a leftover to be removed. */
export function readLabState(name: string): LabState | null {
  return readState(labFiles(name).state)
}

function readState(path: string): LabState | null {
  try {
    const state = JSON.parse(readFileSync(path, 'utf8')) as LabState
    return state.version === 1 ? state : null
  } catch {
    return null
  }
}

/** Replaces the state as a whole; nobody reads half of it. */
export function writeLabState(state: LabState): void {
  writeFileAtomically(labFiles(state.name).state, `${JSON.stringify(state, null, 2)}\n`, {
    mode: 0o644,
    durable: false,
  })
}

/** Removes what processes left that died while they claimed a name: `.NAME-PID`, not yet renamed. */
function sweepHalfClaims(): void {
  if (!existsSync(LABS_DIRECTORY)) return
  for (const entry of readdirSync(LABS_DIRECTORY)) {
    const pid = /^\..*-(\d+)$/.exec(entry)?.[1]
    if (pid === undefined) continue
    const claimer = readState(`${LABS_DIRECTORY}/${entry}/state.json`)?.starter ?? identify(Number(pid))
    if (claimer === null || !isAlive(claimer)) rmSync(`${LABS_DIRECTORY}/${entry}`, { recursive: true, force: true })
  }
}

/** Whether there were any; half-made ones of labs that never came to be go along. */
export function removeLabFiles(name: string): boolean {
  const { directory } = labFiles(name)
  const present = existsSync(directory)
  rmSync(directory, { recursive: true, force: true })
  sweepHalfClaims()
  // Other labs, or other files of ours, may still be in them.
  if (removeEmptyDirectory(LABS_DIRECTORY)) removeEmptyDirectory(dirname(LABS_DIRECTORY))
  return present
}

/** Names of the labs that have files here. */
export function labNames(): string[] {
  if (!existsSync(LABS_DIRECTORY)) return []
  return readdirSync(LABS_DIRECTORY)
    .filter((name) => !name.startsWith('.'))
    .sort()
}

/** @throws FlanneletteError `lab-state` when there is no such lab, with what to do */
export function requireLabState(name: string): LabState {
  const state = readLabState(name)
  if (state?.phase === 'up') return state
  const others = labNames().filter((other) => other !== name)
  const remedy =
    others.length === 0
      ? 'bring one up: flannelette lab up'
      : `bring it up with flannelette lab up --name ${name}, or name another: ${others.join(', ')}`
  const what = state === null ? `there is no lab "${name}"` : `the lab "${name}" is not up`
  throw new FlanneletteError('lab-state', what, { remedy })
}
