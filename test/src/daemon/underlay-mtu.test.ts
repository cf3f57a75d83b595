// A node whose underlay gets another MTU while it runs: device, workers, subnet.env and status follow together, or it
// is said why not.
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { OVERHEAD_BYTES } from '../../../dataplane/encap/overhead.ts'
import { formatPrefix } from '../../../dataplane/wire/prefix.ts'
import { FlanneletteError } from '../../../src/errors.ts'
import { ETH0 } from '../../support/agent-host.ts'
import { following, OLD_TEXT } from '../../support/following-host.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

const MOMENT_MS = 50
/** Until somebody looks again without having been asked to. */
const NEXT_LOOK_MS = 10_000
const overlayOf = (underlay: number) => underlay - OVERHEAD_BYTES.vxlan

type Node = Awaited<ReturnType<typeof following>>

/** The overlay's MTU wherever it is told. */
const told = ({ agent, dataplane, env }: Node) => [
  agent.local?.mtuBytes,
  dataplane.local?.mtuBytes,
  Number(/^FLANNEL_MTU=(\d+)$/m.exec(env() ?? '')?.[1]),
]
const everywhere = (underlay: number) => Array<number>(3).fill(overlayOf(underlay))

test.each([
  ['smaller', 1400],
  ['larger', 9000],
])('a %s one is in force everywhere within a moment, said once, and nothing else changes', async (_, mtu) => {
  const node = await following()
  node.carry([OLD_TEXT], mtu)
  await node.clock.advance(MOMENT_MS)
  expect(told(node)).toEqual(everywhere(mtu))
  const others = (text: string | null) => text?.replace(/^FLANNEL_MTU=.*$/m, '')
  expect(others(node.env())).toContain('FLANNEL_SUBNET=')
  await node.clock.advance(NEXT_LOOK_MS)
  const [line, ...more] = node.said('mtu-changed')
  expect(more).toEqual([])
  expect(line?.message).toContain(`underlay ${mtu} − overhead 50 = ${overlayOf(mtu)}, it was 1450`)
  expect(line?.message).toContain('those that are there keep theirs')
  expect([node.revision(), node.agent.state]).toEqual([node.written, 'ready'])
})

test('however busy the bell, the interface is looked at twice a second at most; the last change counts', async () => {
  const node = await following()
  for (const mtu of [1400, 1300, 9000, 1420]) {
    node.carry([OLD_TEXT], mtu)
    await node.clock.advance(MOMENT_MS)
    expect(told(node)).toEqual(everywhere(1400))
  }
  await node.clock.advance(500)
  expect(told(node)).toEqual(everywhere(1420))
  expect(node.said('mtu-changed')).toHaveLength(2)
})

test('one that the config fixes is not followed: a warning says so, and what a smaller interface does to it', async () => {
  const node = await following({}, '{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","MTU":1500}}')
  node.carry([OLD_TEXT], 1400)
  await node.clock.advance(NEXT_LOOK_MS)
  expect(told(node)).toEqual(everywhere(1500))
  const said = node.said('underlay-mtu-unfollowed')
  expect(said).toHaveLength(1)
  expect(said[0]?.message).toMatch(
    /1400 now, the overlay keeps 1450: Backend\.MTU 1500 .*larger than the interface's 1400/,
  )
})

test('one that leaves too little is not followed, and its end is no news', async () => {
  const node = await following()
  node.carry([OLD_TEXT], 600)
  await node.clock.advance(NEXT_LOOK_MS)
  expect(told(node)).toEqual(everywhere(1500))
  expect(node.said('underlay-mtu-unfollowed')[0]?.message).toContain('at least 576 are needed')
  node.carry([OLD_TEXT], 1500)
  await node.clock.advance(NEXT_LOOK_MS)
  expect([node.said('underlay-mtu-unfollowed').length, node.said('mtu-changed').length]).toEqual([1, 0])
})

test('a change that fails is tried again, and until then no file tells of it', async () => {
  const node = await following()
  node.dataplane.mtuFailures.push(new FlanneletteError('host-command', 'ip: Operation not permitted'))
  node.carry([OLD_TEXT], 1400)
  await node.clock.advance(MOMENT_MS)
  expect([told(node), node.said('underlay-unfollowed').length]).toEqual([everywhere(1500), 1])
  await node.clock.advance(NEXT_LOOK_MS)
  expect([told(node), node.said('mtu-changed').length]).toEqual([everywhere(1400), 1])
})

test('a move to an interface with another MTU takes that as well', async () => {
  const node = await following()
  const to = { ...ETH0, name: 'eth1', address: ETH0.address + 76, mtuBytes: 1400 }
  node.choose(to)
  node.carry([])
  await node.clock.advance(NEXT_LOOK_MS)
  expect(node.dataplane.local).toMatchObject({ underlayInterface: 'eth1', underlayAddress: to.address })
  expect(told(node)).toEqual(everywhere(1400))
})

test('a lease that is lost in the middle of it leaves no subnet.env behind', async () => {
  const node = await following()
  let finish = () => {}
  node.dataplane.changeMtu = () =>
    new Promise((resolve) => {
      finish = resolve
    })
  node.carry([OLD_TEXT], 1400)
  await node.clock.advance(MOMENT_MS)
  const others = peerLease(formatPrefix(node.subnet!), '192.0.2.9', '0a:00:00:00:00:09')
  node.shared.edit(() => [{ ...others, revision: 90 }])
  await node.clock.advance(1000)
  finish()
  await node.agent.lost
  expect(node.env()).toBeNull()
})

test('Docker options that are made from subnet.env follow with it', async () => {
  const dockerOptsFile = `${temporaryDirectory()}/docker_opts.env`
  const node = await following({ dockerOptsFile })
  const option = () => /--mtu=(\d+)/.exec(readFileSync(dockerOptsFile, 'utf8'))?.[1]
  expect(option()).toBe('1450')
  node.carry([OLD_TEXT], 1400)
  await node.clock.advance(MOMENT_MS)
  expect(option()).toBe('1350')
})
