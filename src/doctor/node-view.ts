// What is known of this node and its peers without asking anybody to do anything: what the daemon says on its local socket,
// else its status.json, or, when that is not there, the leases that a former daemon kept. `flannelette doctor` and `flannelette ping` start from it.
import { readFileSync } from 'node:fs'
import { apiSocketOf } from '../daemon/daemon-words.ts'
import { type LeaseStatus, leaseStatus } from '../daemon/lease-status.ts'
import type { PeerStatus } from '../daemon/peer-status.ts'
import type { PeerState } from '../daemon/peer-watch.ts'
import { StateDirectory } from '../daemon/state-directory.ts'
import type { DaemonStatus } from '../daemon/status-file.ts'
import { askStatus, readStatusFile, StatusProblem } from '../daemon/status-source.ts'
import { silentLog } from '../log.ts'

/** A peer as the status has it; what passed between it and this node where somebody counts that. */
export interface PeerView extends LeaseStatus {
  /** How packets get there; absent or `null` where there is only the tunnel. */
  readonly ways?: PeerStatus['ways']
  /** As the daemon judges it; absent in kept leases. */
  readonly state?: PeerState | null
  readonly traffic?: {
    readonly sentPackets: number
    readonly receivedPackets: number
    /** ISO 8601, `null` for never. */
    readonly lastSent: string | null
    readonly lastReceived: string | null
  } | null
}

export interface NodeView {
  readonly stateDirectory: string
  /** `status` as the daemon says it or wrote it last; `null` when there is none that can be read. */
  readonly status: DaemonStatus | null
  /** Why there is no status; empty when there is. */
  readonly statusProblem: string
  /** Whether the daemon of that status runs now. */
  readonly alive: boolean
  /** False when it was asked on its socket, and nothing came back. */
  readonly answers?: boolean
  /** Peers by status, else by the kept leases (own one included: who it is is not known then). */
  readonly peers: readonly PeerView[]
}

/** A daemon that is slower is judged by its file, milliseconds. On a busy machine one that is well may take two seconds. */
export const ANSWER_LIMIT_MS = 3000

/** The daemon's own word where it can be had: a disk that is full makes its file an old one. Never fails. */
export async function askNodeView(stateDirectory: string): Promise<NodeView> {
  const view = readNodeView(stateDirectory)
  if (view.status !== null && !view.alive) return view
  try {
    const socket = apiSocketOf(view.status?.pid ?? null, stateDirectory)
    const status = await askStatus(socket, ANSWER_LIMIT_MS)
    return { stateDirectory, status, statusProblem: '', alive: true, answers: true, peers: status.peers }
  } catch (error) {
    if (error instanceof StatusProblem) return view // a daemon of another version: its file says as much
    const mayAsk = !['EACCES', 'EPERM'].includes((error as NodeJS.ErrnoException).code ?? '')
    return view.alive && mayAsk ? { ...view, answers: false } : view
  }
}

/** Reads what is there; never fails. */
function readNodeView(stateDirectory: string): NodeView {
  try {
    const status = readStatusFile(stateDirectory)
    const alive = status.state !== 'stopping' && isDaemon(status.pid)
    return { stateDirectory, status, statusProblem: '', alive, peers: status.peers }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    const statusProblem =
      code === 'ENOENT' ? 'it does not exist' : error instanceof StatusProblem ? `it ${message}` : message
    return { stateDirectory, status: null, statusProblem, alive: false, peers: keptLeases(stateDirectory) }
  }
}

function keptLeases(stateDirectory: string): LeaseStatus[] {
  return new StateDirectory(stateDirectory, silentLog).readLeases().map(leaseStatus)
}

/** Whether the process exists and looks like one of ours: pids are given again after a crash. */
function isDaemon(pid: number): boolean {
  try {
    return /\brun\b/.test(readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' '))
  } catch {
    return false
  }
}
