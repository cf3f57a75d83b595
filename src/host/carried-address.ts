// Whether an interface is up and has an address: a look without a program, so one may look often.
import { networkInterfaces } from 'node:os'
import { formatAddress } from '../../dataplane/index.ts'

/**
 * Only interfaces that are up are listed, and an address with a label under the label (`eth0:1`). True also where nothing
 * can be looked at: a process without files left to open has lost no address.
 */
export function carriesAddress(interfaceName: string, address: number | bigint): boolean {
  const text = formatAddress(address)
  return Object.entries(listed() ?? { [interfaceName]: [{ address: text }] }).some(([name, addresses = []]) => {
    const same = name === interfaceName || name.startsWith(`${interfaceName}:`)
    return same && addresses.some((info) => info.address === text)
  })
}

function listed(): Readonly<Record<string, readonly { readonly address: string }[] | undefined>> | null {
  try {
    return networkInterfaces()
  } catch {
    return null
  }
}
