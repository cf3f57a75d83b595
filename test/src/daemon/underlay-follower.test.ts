// A node whose underlay changes while it runs: when it moves, when it stays, and what peers and the store see of it.
import { describe, expect, test } from 'vitest'
import { parseIpv4 } from '../../../dataplane/wire/address.ts'
import { HealthWatch } from '../../../src/daemon/health.ts'
import { FlanneletteError } from '../../../src/errors.ts'
import type { UnderlayInterface } from '../../../src/host/underlay-interface.ts'
import { ETH0 } from '../../support/agent-host.ts'
import { following, OLD_TEXT } from '../../support/following-host.ts'

const NEW: UnderlayInterface = { ...ETH0, address: parseIpv4('192.0.2.77')! }
const NEW_TEXT = '192.0.2.77'
const LONG_MS = 30_000

describe('an address that is replaced for good', () => {
  test('is followed after five quiet seconds: sockets move, the lease keeps its subnet', async () => {
    const node = await following()
    node.choose(NEW)
    node.carry([NEW_TEXT])
    await node.clock.advance(4900)
    expect([node.revision(), node.dataplane.local?.underlayAddress]).toEqual([node.written, ETH0.address])
    await node.clock.advance(200)
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

  test('when the address was fixed by --public-ip; that is said once, and the node degraded until it is back', async () => {
    const node = await following({ publicIp: ETH0.address })
    node.choose(NEW)
    node.carry([NEW_TEXT])
    await node.clock.advance(LONG_MS)
    expect([node.revision(), node.dataplane.local?.underlayAddress]).toEqual([node.written, ETH0.address])
    expect([node.said('underlay-fixed').length, node.agent.state]).toEqual([1, 'degraded'])
    expect(new HealthWatch(node.agent, node.dataplane, () => 0).look()).toMatchObject({
      ready: true,
      notes: ['the underlay address is gone'],
    })
    node.carry([OLD_TEXT])
    await node.clock.advance(500)
    expect(node.agent.state).toBe('ready')
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
