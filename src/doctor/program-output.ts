// Reads what `ss`, `nmcli` and `networkctl` print. Pure.
import type { ManagedDevice, PortHolder } from './facts.ts'

/** `ss -Hulnp`: one line a socket, `users:(("node",pid=123,fd=20))` where that may be known. */
export function parsePorts(text: string): PortHolder[] {
  return text.split('\n').flatMap((line) => {
    const [, address, port] = /^\S+\s+\d+\s+\d+\s+(\S+):(\d+)\s/.exec(line) ?? []
    if (address === undefined || port === undefined) return []
    const [, program, pid] = /users:\(\("([^"]*)",pid=(\d+)/.exec(line) ?? []
    return [{ port: Number(port), address, pid: pid === undefined ? null : Number(pid), program: program ?? null }]
  })
}

/** `nmcli -t -f DEVICE,STATE device` and `networkctl list --no-legend`: the devices that are not left alone. */
export function parseManaged(nmcli: string, networkctl: string): ManagedDevice[] {
  const byManager = nmcli.split('\n').flatMap((line) => {
    const [, device, state] = /^(.+):([^:]+)$/.exec(line) ?? []
    return device === undefined || state === 'unmanaged' ? [] : [{ device, by: 'NetworkManager' } as const]
  })
  const byNetworkd = networkctl.split('\n').flatMap((line) => {
    const [, device, , , setup] = line.trim().split(/\s+/)
    const leftAlone = setup === undefined || setup === 'unmanaged' || setup === 'pending'
    return device === undefined || leftAlone ? [] : [{ device, by: 'systemd-networkd' } as const]
  })
  return [...byManager, ...byNetworkd]
}

/** What a command line gives a flag: `--name value` or `--name=value`, also with one dash; `null` for nothing. */
export function optionOf(words: readonly string[], name: string): string | null {
  for (const [index, word] of words.entries()) {
    const [, found, value] = /^--?([\w-]+)(?:=(.*))?$/.exec(word) ?? []
    if (found === name) return value ?? words[index + 1] ?? null
  }
  return null
}
