// A node whose underlay changes while it runs: when it moves, when it stays, and what peers and the store see of it.
import { describe, expect, test } from 'vitest'
import { parseIpv4 } from '../../../dataplane/wire/address.ts'
import type { AgentOptions, Underlay } from '../../../src/daemon/agent-options.ts'
import { FlanneletteError } from '../../../src/errors.ts'
import type { AddressInfo, LinkInfo } from '../../../src/host/ip.ts'
import { ETH0, makeHost, started } from '../../support/agent-host.ts'

const NEW: Underlay = { ...ETH0, address: parseIpv4('192.0.2.77')! }
const OLD_TEXT = '192.0.2.1'
const NEW_TEXT = '192.0.2.77'
const LONG_MS = 30_000

/** A node that follows, on a host whose interface the test changes. */
async function following(changes: Partial<AgentOptions> = {}) {
  const host = makeHost()
  let link: LinkInfo | null = null
  let bell = () => {}
  let choice: Underlay | FlanneletteError = ETH0
  const carry = (texts: readonly string[], mtu = 1500) => {
    const addr_info: AddressInfo[] = texts.map((local) => ({ family: 'inet', local, prefixlen: 24, scope: 'global' }))
    link = { ifindex: 2, ifname: 'eth0', mtu, flags: ['UP'], addr_info }
    bell()
  }
  carry([OLD_TEXT])
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

describe('an address that is replaced for good', () => {
  test('is followed after five quiet seconds: sockets move, the lease keeps its subnet', async () => {
    const node = await following()
    node.choose(NEW)
    node.carry([NEW_TEXT])
    await node.clock.advance(5000)
    expect([node.revision(), node.dataplane.local?.underlayAddress]).toEqual([node.written, ETH0.address])
    await node.clock.advance(1000)
    expect(node.dataplane.local).toMatchObject({ underlayAddress: NEW.address, subnet: node.subnet })
    expect(node.agent.local).toEqual(node.dataplane.local)
    expect(node.lease()).toMatchObject({ subnet: node.subnet, attributes: { publicIp: NEW.address } })
    expect([node.agent.state, node.revision()]).toEqual(['ready', node.written + 1])
    expect(node.said('underlay-moved')[0]?.message).toContain('192.0.2.77 on eth0 now, it was 192.0.2.1 on eth0')
    await node.clock.advance(LONG_MS)
    expect(node.revision()).toBe(node.written + 1)
  })

  test('is noticed without the bell as well', async () => {
    const node = await following({ underlayEyes: { readLink: async () => null, doorbell: () => ({ stop: () => {} }) } })
    node.choose(NEW)
    await node.clock.advance(16_000)
    expect(node.lease().attributes.publicIp).toBe(NEW.address)
  })

  test('and replaced again meanwhile waits until the last one has stayed', async () => {
    const node = await following()
    node.choose(NEW)
    node.carry([NEW_TEXT])
    await node.clock.advance(4000)
    const last = { ...ETH0, address: parseIpv4('192.0.2.88')! }
    node.choose(last)
    node.carry(['192.0.2.88'])
    await node.clock.advance(4000)
    expect(node.revision()).toBe(node.written)
    await node.clock.advance(2000)
    expect(node.lease().attributes.publicIp).toBe(last.address)
  })

  test('leaves the lease alone where peers were told another address', async () => {
    const publicIp = parseIpv4('203.0.113.5')!
    const node = await following({ publicIp })
    node.choose(NEW)
    node.carry([NEW_TEXT])
    await node.clock.advance(LONG_MS)
    expect(node.dataplane.local?.underlayAddress).toBe(NEW.address)
    expect([node.lease().attributes.publicIp, node.revision()]).toEqual([publicIp, node.written])
  })
})

describe('nothing moves', () => {
  test('when the address is back within five seconds', async () => {
    const node = await following()
    for (let flap = 0; flap < 5; flap++) {
      node.choose(NEW)
      node.carry([NEW_TEXT])
      await node.clock.advance(4000)
      node.choose(ETH0)
      node.carry([OLD_TEXT])
      await node.clock.advance(4000)
    }
    expect([node.revision(), node.said('underlay-moved')]).toEqual([node.written, []])
  })

  test('when the address was fixed by --public-ip; that is said once', async () => {
    const node = await following({ publicIp: ETH0.address })
    node.choose(NEW)
    node.carry([NEW_TEXT])
    await node.clock.advance(LONG_MS)
    expect([node.revision(), node.dataplane.local?.underlayAddress]).toEqual([node.written, ETH0.address])
    expect(node.said('underlay-fixed')).toHaveLength(1)
  })

  test('when the rule would choose another by now, but the address is still there', async () => {
    const node = await following()
    node.choose(NEW)
    node.carry([OLD_TEXT, NEW_TEXT])
    await node.clock.advance(LONG_MS)
    expect([node.revision(), node.dataplane.local?.underlayAddress]).toEqual([node.written, ETH0.address])
  })

  test('while there is no other address; the first one that comes is taken', async () => {
    const node = await following()
    node.choose(new FlanneletteError('interface-unsuitable', 'interface eth0 has no usable IPv4 address'))
    node.carry([])
    await node.clock.advance(LONG_MS)
    expect([node.revision(), node.said('underlay-unfollowed')]).toEqual([node.written, []])
    node.choose(NEW)
    node.carry([NEW_TEXT])
    await node.clock.advance(6000)
    expect(node.lease().attributes.publicIp).toBe(NEW.address)
  })
})

describe('a move that fails is tried again', () => {
  test('when another daemon of this host has the address', async () => {
    let others: FlanneletteError | null = null
    const node = await following({
      claimIdentity: async () => {
        if (others !== null) throw others
      },
    })
    others = new FlanneletteError('device-busy', 'another daemon on this host (pid 7) has the address 192.0.2.77')
    node.choose(NEW)
    node.carry([NEW_TEXT])
    await node.clock.advance(8000)
    expect([node.revision(), node.said('underlay-unfollowed').length]).toEqual([node.written, 1])
    others = null
    await node.clock.advance(10_000)
    expect(node.lease().attributes.publicIp).toBe(NEW.address)
  })

  test('when the sockets cannot be opened', async () => {
    const node = await following()
    node.dataplane.moveFailures.push(new FlanneletteError('port-busy', 'UDP 192.0.2.77:8472 is in use'))
    node.choose(NEW)
    node.carry([NEW_TEXT])
    await node.clock.advance(8000)
    expect([node.agent.local?.underlayAddress, node.revision()]).toEqual([ETH0.address, node.written])
    await node.clock.advance(10_000)
    expect([node.agent.local?.underlayAddress, node.revision()]).toEqual([NEW.address, node.written + 1])
  })

  test('when the store is away: sockets have moved, the lease follows once it is back', async () => {
    const node = await following()
    node.shared.setOutage('gone')
    node.choose(NEW)
    node.carry([NEW_TEXT])
    await node.clock.advance(20_000)
    expect([node.agent.local?.underlayAddress, node.agent.state]).toEqual([NEW.address, 'degraded'])
    node.shared.setOutage(null)
    await node.clock.advance(LONG_MS)
    expect([node.lease().attributes.publicIp, node.agent.state]).toEqual([NEW.address, 'ready'])
  })
})

test('another MTU of the underlay is told once, with what it takes', async () => {
  const node = await following()
  node.carry([OLD_TEXT], 9000)
  await node.clock.advance(LONG_MS)
  const said = node.said('underlay-mtu-changed')
  expect(said).toHaveLength(1)
  expect(said[0]?.message).toContain('underlay 9000 − overhead 50 = 8950')
  expect(said[0]?.message).toContain('restart')
  expect(node.agent.local?.mtuBytes).toBe(1450)
})
