// The way out of a lab, whole or half-built: daemons, namespaces, files, in this order. Also the way to find what a
// crashed lab left. Safe to repeat.
import { counted } from '../counted.ts'
import { sweepRuntime } from '../daemon/runtime-sweep.ts'
import { type LabState, labFiles, labNames, readLabState, removeLabFiles } from './lab-state.ts'
import { existingNamespaces, removeNamespaces } from './namespaces.ts'
import { endProcesses, isAlive } from './process-identity.ts'

export interface Removed {
  readonly daemons: number
  readonly namespaces: number
  readonly files: boolean
}

/** A daemon's own shutdown takes up to 1.5 s. */
const DAEMON_PATIENCE_MS = 2_500

/** Removes every trace of the lab of that name. Nothing there is no failure. */
export async function tearDown(name: string): Promise<Removed> {
  const state = readLabState(name)
  const daemons = livingDaemons(state)
  await endProcesses(daemons, DAEMON_PATIENCE_MS)
  const namespaces = await existingNamespaces(name)
  await removeNamespaces(namespaces)
  await sweepRuntime().catch(() => {}) // what a daemon left that was killed; no part of the lab
  return { daemons: daemons.length, namespaces: namespaces.length, files: removeLabFiles(name) }
}

function livingDaemons(state: LabState | null) {
  return (state?.hosts ?? []).flatMap(({ daemon }) => (daemon !== null && isAlive(daemon) ? [daemon] : []))
}

export type Occupancy =
  | { readonly kind: 'free' }
  /** Up and healthy as far as can be told from outside. */
  | { readonly kind: 'up'; readonly state: LabState }
  | { readonly kind: 'starting' }
  /** Something is there that no running lab accounts for. */
  | { readonly kind: 'leftover'; readonly why: string }

/** What is there under a lab's name. */
export async function occupancy(name: string): Promise<Occupancy> {
  const namespaces = new Set(await existingNamespaces(name))
  const state = readLabState(name)
  if (state === null) {
    if (namespaces.size > 0)
      return { kind: 'leftover', why: `${counted(namespaces.size, 'namespace')} without a state file` }
    return labNames().includes(name)
      ? { kind: 'leftover', why: `files in ${labFiles(name).directory}` }
      : { kind: 'free' }
  }
  if (state.phase === 'starting') {
    if (isAlive(state.starter)) return { kind: 'starting' }
    return { kind: 'leftover', why: 'its start was interrupted' }
  }
  if (state.owned && !isAlive(state.starter)) return { kind: 'leftover', why: 'the command that held it is gone' }
  const missing = [...state.hosts, ...state.pods].filter((member) => !namespaces.has(member.namespace))
  if (missing.length > 0) return { kind: 'leftover', why: `${missing.length} of its namespaces are gone` }
  const dead = state.hosts.filter(({ daemon }) => daemon !== null && !isAlive(daemon))
  if (dead.length > 0 && dead.length === state.hosts.length)
    return { kind: 'leftover', why: 'all its daemons are gone' }
  return { kind: 'up', state }
}
