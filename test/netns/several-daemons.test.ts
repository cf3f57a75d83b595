// Two daemons on one host, each in a network of its own that it shares with a second host. Network "red" has the largest
// VNI and IANA's port, and a kernel VTEP as its other node; network "blue" is as flannel has it.
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { expect, onTestFinished, test } from 'vitest'
import { attempt } from '../../src/host/command.ts'
import { mainProgram } from '../../src/lab/daemon-process.ts'
import { answered } from '../support/answered.ts'
import { type Host, startDaemon, twoHosts } from '../support/daemon-under-test.ts'
import { ip } from '../support/own-namespace.ts'
import { inNetwork, overlayOf } from '../support/several-networks.ts'

const RED = { Network: '10.66.0.0/16', Backend: { Type: 'vxlan', VNI: 0xffffff, Port: 4789 } }
const BLUE = { Network: '10.77.0.0/16', Backend: { Type: 'vxlan' } }
const MORE = ['--ip-masq', '--ip-blackhole-route', '--iptables-resync', '1']

const shows = (host: Host, ...words: string[]) => ip('-n', host.namespace, ...words)
const rulesOf = async (host: Host) => (await attempt(['iptables-save'], { namespace: host.namespace })).stdout
const program = (host: Host, ...words: string[]) =>
  attempt([process.execPath, mainProgram(), ...words], { namespace: host.namespace })

type Networks = Awaited<ReturnType<typeof twoNetworks>>

async function twoNetworks() {
  const [first, second] = twoHosts()
  const hosts = {
    red: [inNetwork(first, 'red', RED), inNetwork(second, 'red', RED)],
    blue: [inNetwork(first, 'blue', BLUE), inNetwork(second, 'blue', BLUE)],
  } as const
  const red = [startDaemon(hosts.red[0], MORE), startDaemon(hosts.red[1], [...MORE, '--dataplane', 'kernel'])] as const
  await Promise.all(red.map((daemon) => daemon.ready(1)))
  const blue = [startDaemon(hosts.blue[0], MORE), startDaemon(hosts.blue[1], MORE)] as const
  await Promise.all(blue.map((daemon) => daemon.ready(1)))
  return { hosts, red, blue, here: hosts.red[0] }
}

test('two networks on one host, one with a kernel peer: each answers, and one can go without the other noticing', async () => {
  const networks = await twoNetworks()
  await expectBothAnswer(networks)
  await expectOwnRules(networks)
  await expectCleanupSparesBlue(networks)
  const { hosts, red, blue, here } = networks
  const again = startDaemon(hosts.red[0], MORE)
  await again.ready(1)
  expect(await answered(here.namespace, overlayOf(red[1]))).toBe(3)
  expect(await answered(here.namespace, overlayOf(blue[1]))).toBe(3)
  // In all this time, with a look each second, nobody has found the other's rules in place of its own.
  for (const daemon of [...red, ...blue]) expect(daemon.output).not.toContain('firewall-repaired')
  expect(blue[0].complaints).toEqual([])
})

async function expectBothAnswer({ hosts, red, blue, here }: Networks): Promise<void> {
  await expectOnWire(here, () => answered(here.namespace, overlayOf(red[1])), [
    /192\.0\.2\.1\.\d+ > 192\.0\.2\.2\.4789: VXLAN, flags \[I\] \(0x08\), vni 16777215/,
    /192\.0\.2\.2\.\d+ > 192\.0\.2\.1\.4789: VXLAN, flags \[I\] \(0x08\), vni 16777215/,
  ])
  expect(await answered(here.namespace, overlayOf(blue[1]))).toBe(3)
  expect([red[0].status?.node?.device, blue[0].status?.node?.device]).toEqual(['flannel.xffffff', 'flannel.1'])
  expect(shows(hosts.red[1], '-d', 'link', 'show', 'flannel.xffffff')).toContain('vxlan id 16777215 ')
  const status = await program(here, 'status', '--state-dir', hosts.red[0].stateDirectory, '-o', 'json')
  expect(JSON.parse(status.stdout)).toMatchObject({ ready: true, status: { node: { vni: 0xffffff, port: 4789 } } })
}

/** Of each daemon its own. */
async function expectOwnRules({ here }: Networks): Promise<void> {
  const chains = async () => (await rulesOf(here)).match(/^:FLANNEL-\S+/gm)?.sort()
  await expect.poll(chains).toEqual([':FLANNEL-FWD', ':FLANNEL-FWD-2', ':FLANNEL-POSTRTG', ':FLANNEL-POSTRTG-2'])
  const blackholes = () => shows(here, 'route', 'show', 'type', 'blackhole').trim().split('\n').length
  await expect.poll(blackholes, { timeout: 10_000 }).toBe(2)
}

async function expectCleanupSparesBlue({ hosts, red, blue, here }: Networks): Promise<void> {
  const traffic = answered(here.namespace, overlayOf(blue[1]), 60)
  const files = ['--state-dir', hosts.red[0].stateDirectory, '--subnet-file', hosts.red[0].subnetFile]
  const busy = await program(here, 'cleanup', '--dry-run', ...files)
  expect(busy).toMatchObject({ exitCode: 1, stderr: expect.stringContaining(`pid ${red[0].pid}`) })
  expect(await red[0].end('SIGTERM')).toMatchObject({ exitCode: 0 })
  const cleaned = await program(here, 'cleanup', '--yes', '--state', ...files)
  expect(cleaned).toMatchObject({ exitCode: 0, stderr: expect.stringContaining(`(pid ${blue[0].pid}) uses stays`) })
  expect(await traffic).toBe(60)

  const left = [shows(here, 'link', 'show'), shows(here, 'route', 'show'), await rulesOf(here)].join('\n')
  expect(left).not.toMatch(/10\.66\.|flannel\.xffffff|FLANNEL-POSTRTG\s|FLANNEL-FWD\s/)
  expect(left).toMatch(/FLANNEL-POSTRTG-2/)
  expect(shows(here, 'route', 'show', '10.77.0.0/16')).toContain('dev flannel.1')
  expect(readFileSync(hosts.blue[0].subnetFile, 'utf8')).toContain('FLANNEL_NETWORK=10.77.0.0/16')
}

test('a second daemon that would share a port by the kernel’s leave does not start, and the first goes on', async () => {
  const [first] = twoHosts()
  const one = startDaemon(inNetwork(first, 'blue', BLUE), ['--workers', '2'])
  await one.ready(0)
  const config = { ...RED, Backend: { Type: 'vxlan', VNI: 5 } }
  const other = startDaemon(inNetwork(first, 'red', config), ['--workers', '2'])
  expect(await other.exited()).toBe(1)
  expect(other.told.join()).toMatch(/UDP 192\.0\.2\.1:8472 is the port of another daemon of this host \(pid \d+/)
  expect(one.status?.state).toBe('ready')
})

/** All of that tcpdump says of the underlay while `work` is done. */
async function expectOnWire(host: Host, work: () => Promise<unknown>, seen: readonly RegExp[]): Promise<void> {
  const words = ['netns', 'exec', host.namespace, 'tcpdump', '-n', '-l', '-i', 'eth0', 'udp', 'port', '4789']
  const child = spawn('ip', words, { stdio: ['ignore', 'pipe', 'pipe'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  let said = ''
  let listens = () => {}
  const listening = new Promise<void>((resolve) => {
    listens = resolve
  })
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    said += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    if (text.includes('listening on')) listens()
  })
  await listening
  await work()
  for (const line of seen) await expect.poll(() => said).toMatch(line)
  child.kill('SIGTERM')
}
