// A node in memory that follows its underlay, on a host whose interface the test changes.
import type { AgentOptions } from '../../src/daemon/agent-options.ts'
import { FlanneletteError } from '../../src/errors.ts'
import type { AddressInfo, LinkInfo } from '../../src/host/ip.ts'
import type { UnderlayInterface } from '../../src/host/underlay-interface.ts'
import { CONFIG, ETH0, makeHost, started } from './agent-host.ts'

/** The address of {@link ETH0}. */
export const OLD_TEXT = '192.0.2.1'

/** What a host begins with. */
export interface FirstUnderlay {
  readonly choice: UnderlayInterface
  /** All addresses of the interface. */
  readonly texts: readonly string[]
}

/** `carry` gives the interface these addresses and an MTU, and rings the bell. */
export async function following(
  changes: Partial<AgentOptions> = {},
  config = CONFIG,
  first: FirstUnderlay = { choice: ETH0, texts: [OLD_TEXT] },
) {
  const host = makeHost(config)
  let link: LinkInfo | null = null
  let bell = () => {}
  let choice: UnderlayInterface | FlanneletteError = first.choice
  const carry = (texts: readonly string[], mtu = 1500) => {
    const addr_info: AddressInfo[] = texts.map((local) => {
      return { family: local.includes(':') ? 'inet6' : 'inet', local, prefixlen: 24, scope: 'global' }
    })
    link = { ifindex: 2, ifname: 'eth0', mtu, flags: ['UP'], addr_info }
    bell()
  }
  carry(first.texts)
  const node = await started(host, {
    selectUnderlay: async () => {
      if (choice instanceof FlanneletteError) throw choice
      return choice
    },
    underlayEyes: {
      readLink: async () => link,
      doorbell: (ring) => {
        bell = ring
        return { stop: () => {} }
      },
    },
    ...changes,
  })
  const subnet = node.agent.local!.subnet
  return {
    ...host,
    ...node,
    subnet,
    carry,
    choose: (next: typeof choice) => {
      choice = next
    },
    written: host.shared.book().revision,
    revision: () => host.shared.book().revision,
    lease: () => host.shared.book().leases()[0]!,
    said: (event: string) => host.log.lines.filter((line) => line.event === event),
  }
}
