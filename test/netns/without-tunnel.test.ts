// Backends that tunnel nothing, as daemons on two hosts: alloc, and an extension whose commands write routes.
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { extensionConfig } from '../support/backends-page.ts'
import { type Host, startDaemon, traceOf, twoHosts, writeConfig } from '../support/daemon-under-test.ts'
import { ip } from '../support/own-namespace.ts'

const NETWORK = '10.244.0.0/16'

/** Address of the host in its own subnet, on its loopback. */
function addressIn(host: Host): string {
  const subnet = /FLANNEL_SUBNET=(.*)\/24/.exec(readFileSync(host.subnetFile, 'utf8'))![1]!
  ip('-n', host.namespace, 'address', 'add', `${subnet}/32`, 'dev', 'lo')
  return subnet
}

/** With a count ping does not wait long for the last answer: what it thinks lost may only be late. */
async function expectReached({ namespace }: Host, from: string, to: string): Promise<void> {
  const words = ['ping', '-c', '3', '-i', '0.2', '-W', '5', '-I', from, to]
  await expect.poll(() => ip('netns', 'exec', namespace, ...words)).toContain(' 0% packet loss')
}

test('alloc is a lease and subnet.env with the interface’s MTU; nothing on the host changes, and DF of a tunnel is told to have no effect', async () => {
  const [first] = twoHosts()
  writeConfig(first.store, { Network: NETWORK, Backend: { Type: 'alloc' } })
  const before = traceOf(first)
  const daemon = startDaemon(first, ['--outer-df', 'set'])
  await daemon.ready(0)
  expect(daemon.status).toMatchObject({ dataplane: 'none', driver: 'none', lease: { backendType: '' } })
  expect({ ...traceOf(first), subnetFile: null }).toEqual(before)
  expect(readFileSync(first.subnetFile, 'utf8')).toContain('FLANNEL_MTU=1500\n')
  expect(daemon.complaints).toEqual([
    expect.stringMatching(/"option-without-effect".*--outer-df has no effect: the backend alloc has no tunnel/),
  ])
  expect(await daemon.end('SIGTERM')).toMatchObject({ exitCode: 0 })
})

test('an extension’s commands connect two hosts: routes come and go with peers, also with one that leaves while no daemon runs; a failing one is pending', async () => {
  const [first, second] = twoHosts()
  const mark = join(dirname(first.store), 'may-add')
  const seen = join(dirname(first.store), 'seen')
  const adds = `test -e ${mark} && cat >> ${seen} && ip route replace "$SUBNET" via "$PUBLIC_IP" dev eth0`
  writeConfig(first.store, {
    Network: NETWORK,
    Backend: {
      Type: 'extension',
      Shell: true,
      PreStartupCommand: 'echo "I am $(hostname -I)"',
      SubnetAddCommand: adds,
      SubnetRemoveCommand: 'ip route delete $SUBNET',
    },
  })
  const here = startDaemon(first, ['--on-exit', 'remove'])
  await here.ready(0)
  const there = startDaemon(second, ['--on-exit', 'remove'])
  await expect.poll(() => here.status?.pendingPeers, { timeout: 20_000 }).toBe(1)
  const pending = { way: 'none', why: expect.stringContaining('SubnetAddCommand failed') }
  await expect.poll(() => here.status?.peers[0]?.ways?.[0], { timeout: 20_000 }).toMatchObject(pending)
  expect(here.status).toMatchObject({ state: 'degraded', dataplane: 'commands' })
  writeFileSync(mark, '')
  await Promise.all([here.ready(1), there.ready(1)])
  const routeTo = (host: Host) => ip('-n', host.namespace, 'route', 'show', 'root', NETWORK)
  const [from, to] = [addressIn(first), addressIn(second)]
  await expectReached(first, from, to)
  expect(readFileSync(seen, 'utf8')).toContain('I am 192.0.2.2')
  expect(await there.end('SIGTERM')).toMatchObject({ exitCode: 0 })
  expect(routeTo(second)).toBe('')
  // The peer leaves while nobody is there to see it.
  await here.end('SIGKILL')
  expect(routeTo(first)).not.toBe('')
  rmSync(join(first.store, 'subnets', `${to.replace(/\.\d+$/, '.0')}-24`), { force: true })
  const again = startDaemon(first, ['--on-exit', 'remove'])
  await again.ready(0)
  await expect.poll(() => routeTo(first), { timeout: 20_000 }).toBe('')
  expect(again.complaints).toEqual([])
  expect(await again.end('SIGTERM')).toMatchObject({ exitCode: 0 })
  expect(existsSync(first.subnetFile)).toBe(false)
})

test('the extension of docs/backends.md connects two hosts without a shell, and leaves nothing', async () => {
  const [first, second] = twoHosts()
  writeConfig(first.store, extensionConfig())
  const before = traceOf(first).routes
  const daemons = [first, second].map((host) => startDaemon(host, ['--on-exit', 'remove']))
  await Promise.all(daemons.map((daemon) => daemon.ready(1)))
  const [from, to] = [addressIn(first), addressIn(second)]
  await expectReached(first, from, to)
  for (const daemon of daemons) expect(daemon.complaints).toEqual([])
  await Promise.all(daemons.map((daemon) => daemon.end('SIGTERM')))
  expect(traceOf(first).routes).toEqual(before)
})

test.each(['PreStartupCommand', 'PostStartupCommand'])(
  '%s that fails ends the start with 1 and says why',
  async (key) => {
    const [host] = twoHosts()
    const Backend = { Type: 'extension', Shell: true, [key]: 'echo the radio is off; exit 4' }
    writeConfig(host.store, { Network: NETWORK, Backend })
    const daemon = startDaemon(host)
    expect(await daemon.exited()).toBe(1)
    expect(daemon.told.join()).toContain(`Backend.${key} failed (exit code 4): the radio is off`)
    expect(existsSync(host.subnetFile)).toBe(false)
  },
)
