// Reads what `ss`, `nmcli` and `networkctl` print. Pure.
import type { ManagedDevice, PortSocket } from './facts.ts'

/** `ss -Hulnp`: one line a socket, `users:(("node",pid=123,fd=20))` where that may be known. */
export function parsePorts(text: string): PortSocket[] {
  return text.split('\n').flatMap((line) => {
    const [, address, port] = /^\S+\s+\d+\s+\d+\s+(\S+):(\d+)\s/.exec(line) ?? []
    if (address === undefined || port === undefined) return []
    const users = line.matchAll(/\("([^"]*)",pid=(\d+),/g)
    const byPid = new Map([...users].map(([, program = '', pid]) => [Number(pid), program]))
    const holders = [...byPid].map(([pid, program]) => ({ pid, program }))
    return [{ port: Number(port), address, holders }]
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
