// Hosts that are nodes of more than one network, each by a daemon of its own.
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { type Host, type RunningDaemon, writeConfig } from './daemon-under-test.ts'

/** The same host as a node of another network. */
export function inNetwork(host: Host, name: string, config: unknown): Host {
  const store = join(host.store, name)
  mkdirSync(store, { recursive: true })
  writeConfig(store, config)
  return { ...host, store, stateDirectory: `${host.stateDirectory}-${name}`, subnetFile: `${host.subnetFile}-${name}` }
}

/** The overlay address of a node. */
export function overlayOf(daemon: RunningDaemon): string {
  return daemon.status!.node!.overlayAddress
}
