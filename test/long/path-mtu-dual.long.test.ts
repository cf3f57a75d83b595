// DF set on a node with a tunnel of each family: each has limits of its own, and a peer is told of with the smaller one.
import { expect, onTestFinished, test } from 'vitest'
import { askInHost } from '../support/ask-in-host.ts'
import { eventually, labUnderTest } from '../support/lab-under-test.ts'
import { ip } from '../support/own-namespace.ts'

const lab = labUnderTest({ name: 'dualway', hosts: 2, pods: 1, family: 'dual', daemonArguments: ['--outer-df', 'set'] })
/** Of host2 on the underlay. */
const THERE = { 4: '192.168.56.12', 6: 'fd00:192:168:56::12' }
const HEADERS = { 4: 28, 6: 48 }

/** Two pings of a packet of so many bytes that must stay whole: the first may meet the change. */
async function pings(family: 4 | 6, bytes: number): Promise<string> {
  const words = ['-n', '-c', '2', '-i', '0.2', '-W', '1', '-M', 'do', '-s', String(bytes - HEADERS[family])]
  const { stdout, stderr } = await lab().exec('pod1.1', ['ping', ...words, lab().endpoint('pod2.1', family).address])
  return stdout + stderr
}

/** The way by that family takes so many bytes from now on, as an operator says it by a route. */
function limit(family: 4 | 6, mtuBytes: number): void {
  const words = [`-${family}`, '-n', lab().namespace('host1'), 'route', 'add', THERE[family], 'dev', 'eth0']
  ip(...words, 'mtu', String(mtuBytes))
}

const pathMtu = () => lab().host('host1').status?.peers[0]?.pathMtu

/** Of the peer matrix, with notes. */
async function saidOfPeers(): Promise<unknown[]> {
  const { json } = await askInHost(lab(), 'host1', 'doctor', '--peers')
  return json.findings.filter(({ check }: { check: string }) => check === 'peer-matrix')
}

const sizes = async () => {
  const { json } = await askInHost(lab(), 'host1', 'ping', 'host2', '-n', '1')
  return json.rungs.filter(({ name }: { name: string }) => name.startsWith('sizes'))
}

test('a hole in the way by IPv6 is measured by ping, and named by doctor of that tunnel alone', async () => {
  const here = (...words: string[]) => lab().exec('host2', ['nft', ...words])
  onTestFinished(async () => void (await here('delete', 'table', 'ip6', 'hole')))
  // 1400 bytes, less the header that the length leaves out.
  const rule = 'udp dport 8472 ip6 length > 1360 drop'
  await here(`add table ip6 hole; add chain ip6 hole input { type filter hook input priority 0; }
    add rule ip6 hole input ${rule}`)
  expect(await sizes()).toMatchObject([
    { verdict: 'good', text: expect.stringMatching(/^over IPv4: 1450 passes, 1451 too big/) },
    { verdict: 'bad', text: 'over IPv6: 1330 passes, 1331 to 1430 vanish; expected 1430 (1500 − 70)' },
  ])
  expect(await saidOfPeers()).toMatchObject([
    {
      severity: 'error',
      message: expect.stringContaining(`${THERE[6]} (fd00:10:244:2::/64) gets packets of pods up to 1330 bytes`),
      remedy: expect.stringMatching(/set Backend\.MTU to 1400 .* let ICMPv6 "packet too big"/),
    },
  ])
})

test('a way by IPv4 and a way by IPv6 are limited apart', async () => {
  for (const family of [4, 6] as const) expect(await pings(family, 1430)).toContain('2 received')
  limit(4, 1400)
  expect(await pings(4, 1430)).toMatch(/mtu ?[=:] ?1350\b/)
  expect(await pings(6, 1430)).toContain('2 received')
  await eventually(() => expect(pathMtu()).toBe(1350))
  limit(6, 1380)
  expect(await pings(6, 1430)).toMatch(/mtu ?[=:] ?1310\b/)
  await eventually(() => expect(pathMtu()).toBe(1310))
  expect(await pings(4, 1350)).toContain('2 received')
  expect(await pings(6, 1310)).toContain('2 received')
  expect(await sizes()).toMatchObject([
    { verdict: 'warning', text: expect.stringMatching(/^over IPv4: 1350 passes, .*pods are told and adapt$/) },
    { verdict: 'warning', text: expect.stringMatching(/^over IPv6: 1310 passes, .*pods are told and adapt$/) },
  ])
  expect(await saidOfPeers()).toMatchObject([
    { severity: 'note', message: expect.stringContaining('up to 1350 of 1450 bytes; pods are told') },
    { severity: 'note', message: expect.stringContaining('up to 1310 of 1430 bytes; pods are told') },
  ])
})
