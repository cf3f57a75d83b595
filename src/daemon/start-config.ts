// The network config of a start: read from the store, waited for, or the one that was kept with the lease.
import { delay } from '../clock.ts'
import { type NetworkConfig, parseNetworkConfig } from '../config/network-config.ts'
import { type TunnelBackend, tunnelBackend } from '../config/tunnel-backend.ts'
import { FlanneletteError } from '../errors.ts'
import { withDeadline } from '../lease/store-deadline.ts'
import type { Log } from '../log.ts'
import type { AgentOptions } from './agent-options.ts'
import type { KeptLease } from './state-directory.ts'

export const FIRST_START_BACKOFF_MS = 1000
export const LONGEST_START_BACKOFF_MS = 30_000
/** Between two calls to a server that does not answer, as flannel has it. */
export const AWAY_RETRY_MS = 1000

/**
 * From the word of a store that there is a config to the look at it: whoever writes a file may still be at it, and one
 * that comes and goes is no reason for haste.
 */
const SETTLE_MS = 500

/** Hears whether the store answers, and what the start waits for if it does not go on; empty for nothing. */
export type TellStore = (reachable: boolean, why: string) => void

interface StartConfig {
  readonly raw: string
  readonly config: NetworkConfig
  readonly backend: TunnelBackend
}

interface ConfigSearch {
  readonly options: AgentOptions
  readonly kept: KeptLease | null
  readonly signal: AbortSignal
  readonly tell: TellStore
}

/**
 * Waits for a config that is not there yet, by looking ever less often and by the store's word, and for a server that does
 * not answer. A node with a kept lease goes on by the config that it kept, also while a server holds one that cannot be
 * used; without, that one ends the start.
 */
export async function readConfig({
  options,
  kept,
  signal,
  tell,
}: ConfigSearch): Promise<StartConfig & { readonly outage: FlanneletteError | null }> {
  const { store, clock } = options
  const known = kept === null ? null : usable(kept.config)
  for (let backoffMs = FIRST_START_BACKOFF_MS; ; backoffMs = Math.min(2 * backoffMs, LONGEST_START_BACKOFF_MS)) {
    try {
      const read = decode(await withDeadline(clock, store.readNetworkConfig(), store.name))
      tell(true, '')
      return { ...read, outage: null }
    } catch (error) {
      if (!(error instanceof FlanneletteError)) throw error
      tell(!isOutage(error), error.message)
      const unusable = store.remote && error.code === 'config-invalid'
      if ((isOutage(error) || unusable) && known !== null) return { ...known, outage: error }
      const away = store.remote && isAway(error)
      if (signal.aborted || !(away || error.code === 'config-missing')) throw error
      sayWaiting(options.log, error)
      if (away) await delay(clock, AWAY_RETRY_MS, signal)
      else await pauseForConfig(options, backoffMs, signal)
      if (signal.aborted) throw error
    }
  }
}

/** Ends after `longestMs`, or soon after the store has told that there is a config. */
async function pauseForConfig({ store, clock }: AgentOptions, longestMs: number, signal: AbortSignal): Promise<void> {
  const over = new AbortController()
  const end = AbortSignal.any([signal, over.signal])
  const longest = delay(clock, longestMs, end)
  const told = store.awaitNetworkConfig(end).then(() => delay(clock, SETTLE_MS, end))
  await Promise.race([longest, told])
  over.abort()
}

/** @throws FlanneletteError `config-invalid` */
function decode(raw: string): StartConfig {
  const config = parseNetworkConfig(raw)
  return { raw, config, backend: tunnelBackend(config) }
}

function usable(raw: string): StartConfig | null {
  try {
    return decode(raw)
  } catch {
    return null
  }
}

function sayWaiting(log: Log, error: FlanneletteError): void {
  const { code, oneLine } = error
  if (code === 'config-missing') log.warn(code, `waiting for the network config: ${oneLine}`)
  else log.warn('store-awaited', `waiting for the store: ${oneLine}`)
}

/** The store says nothing, or nothing but no: what is known already has to do. */
export function isOutage(error: unknown): error is FlanneletteError {
  return isAway(error) || (error instanceof FlanneletteError && error.code === 'store-refused')
}

/** No answer. */
export function isAway(error: unknown): error is FlanneletteError {
  return error instanceof FlanneletteError && error.code === 'store-unreadable'
}
