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

type Listed = Readonly<Record<string, readonly { readonly address: string }[] | undefined>> | null

/** Of this moment; `undefined` where nobody has looked. */
let known: Listed | undefined

/**
 * Whoever says how a node is asks many times over, and the kernel lists all links of all pods each time: without anything
 * waited for in between the answer is one.
 */
function listed(): Listed {
  if (known === undefined) {
    known = look()
    queueMicrotask(() => {
      known = undefined
    })
  }
  return known
}

function look(): Listed {
  try {
    return networkInterfaces()
  } catch {
    return null
  }
}
