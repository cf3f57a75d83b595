// Network namespaces for a test's own experiments, removed afterwards whatever happened.
import { execFileSync } from 'node:child_process'
import { onTestFinished } from 'vitest'

let serial = 0

/** A new namespace with its loopback up; gone when the test is over. */
export function ownNamespace(): string {
  const name = `flx-${process.pid}-${serial++}`
  ip('netns', 'add', name)
  onTestFinished(() => void ip('netns', 'delete', name))
  ip('-n', name, 'link', 'set', 'lo', 'up')
  return name
}

/** Runs `ip` and gives what it printed. Throws with its error text when it fails. */
export function ip(...args: string[]): string {
  return execFileSync('ip', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
}

/** Two namespaces joined by `eth0` of each, addresses 192.0.2.1 and 192.0.2.2. */
export function joinedNamespaces(): [string, string] {
  const first = ownNamespace()
  const second = ownNamespace()
  ip('-n', first, 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', second)
  for (const [index, name] of [first, second].entries()) {
    ip('-n', name, 'address', 'add', `192.0.2.${index + 1}/24`, 'dev', 'eth0')
    ip('-n', name, 'link', 'set', 'eth0', 'up')
  }
  return [first, second]
}
