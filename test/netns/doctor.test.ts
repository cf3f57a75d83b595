// doctor and ping on the hosts of a lab: host2 has the kernel's VTEP, as a node of real flannel has. Both are processes
// of their own inside a host, as an operator runs them.
import { readFileSync, rmSync } from 'node:fs'
import { describe, expect, onTestFinished, test } from 'vitest'
import { attempt, run } from '../../src/host/command.ts'
import { loadRuleset, replaceTable } from '../../src/host/nft.ts'
import { mainProgram } from '../../src/lab/daemon-process.ts'
import { hostFiles } from '../../src/lab/lab-state.ts'
import { askInHost, verdictsOf } from '../support/ask-in-host.ts'
import { eventually, killDaemon, labUnderTest } from '../support/lab-under-test.ts'

const lab = labUnderTest({ name: 'ward', hosts: 3, pods: 1, kernel: ['host2'] })
const ask = (host: string, ...words: string[]) => askInHost(lab(), host, ...words)

/** Makes the switch lose what is larger, without a word. */
async function mtuHole(bytes: number): Promise<void> {
  const where = { namespace: lab().namespace('switch') }
  onTestFinished(() => loadRuleset(replaceTable('bridge', 'hole', ''), where))
  const rule = `chain hole {\ntype filter hook forward priority 0;\nip length > ${bytes} drop\n}`
  await loadRuleset(replaceTable('bridge', 'hole', rule), where)
}

describe('ping', () => {
  test('holds on every rung to a node whose kernel is the VTEP', async () => {
    const { exitCode, json } = await ask('host1', 'ping', 'host2', '-n', '1')
    expect(json).toMatchObject({ version: 1, result: 'reached' })
    expect(verdictsOf(json.rungs)).toBe('good good good good good')
    expect(json.rungs[3].text).toBe('1450 passes, 1451 too big for the tunnel (1500 − 50); underlay passes 1500')
    expect(exitCode).toBe(0)
  })

  test('a hole in the MTU is measured and named', async () => {
    await mtuHole(1400)
    const { exitCode, json } = await ask('host1', 'ping', 'host2', '-n', '1')
    expect(json.rungs[3]).toMatchObject({
      verdict: 'bad',
      text: '1350 passes, 1351 to 1450 vanish; expected 1450 (1500 − 50)',
      next: expect.stringContaining('set Backend.MTU to 1400 (overlay 1350)'),
    })
    expect(exitCode).toBe(1)
  })
})

describe('doctor', () => {
  const bad = (findings: readonly { severity: string; check: string }[]) =>
    findings.filter(({ severity }) => severity === 'error' || severity === 'warning').map(({ check }) => check)

  test('finds nothing on a healthy host whose peers all answer', async () => {
    const { exitCode, json } = await ask('host1', 'doctor', '--peers', '--strict')
    expect(bad(json.findings)).toEqual([])
    expect(json).toMatchObject({ version: 1, healthy: true })
    expect(json.peers).toHaveLength(2)
    for (const row of json.peers) expect(row).toMatchObject({ refused: false, whole: true, fragmented: true })
    expect(exitCode).toBe(0)
  })

  test('finds what was broken: forwarding, policy, port, MTU, route; and changes nothing', async () => {
    const where = { namespace: lab().namespace('host1') }
    const shell = (line: string) => run(['bash', '-c', line], where)
    onTestFinished(async () => {
      await shell(
        'sysctl -qw net.ipv4.ip_forward=1; ip link set eth0 mtu 1500; nft delete table inet test; ip route del 10.244.77.0/24',
      )
    })
    await shell(`sysctl -qw net.ipv4.ip_forward=0; ip link set eth0 mtu 1400; ip route add 10.244.77.0/24 dev eth0
      nft 'add table inet test; add chain inet test forward { type filter hook forward priority 0; policy drop; }'
      nft 'add chain inet test in { type filter hook input priority 0; }; add rule inet test in udp dport 8472 counter drop'`)
    // The overlay has followed, and the bridge of the pods has not.
    await eventually(() => expect(lab().host('host1').status?.node?.mtu).toBe(1350))
    const state = () => shell('ip address; ip route; ip neigh | wc -l; nft -s list ruleset; sysctl net.ipv4.conf')
    const before = await state()
    const { exitCode, json } = await ask('host1', 'doctor')
    expect(bad(json.findings)).toEqual(['mtu', 'firewall-port', 'network-route', 'ip-forward', 'forward-policy'])
    expect(exitCode).toBe(1)
    expect(await state()).toBe(before)
  })

  test('from another network namespace than the daemon nothing is said of its network', async () => {
    const { stateDirectory, subnetFile } = hostFiles('ward', 'host1')
    const words = ['doctor', '--state-dir', stateDirectory, '--subnet-file', subnetFile, '-o', 'json']
    const { stdout } = await attempt([process.execPath, mainProgram(), ...words])
    expect(bad(JSON.parse(stdout).findings)).toEqual(['network-namespace'])
  })

  test('a dead daemon: what is left is judged and bundled; healing starts it, whoever ended it', async () => {
    const archive = `${hostFiles('ward', 'host3').directory}/bundle.tar.gz`
    onTestFinished(() => rmSync(archive, { force: true }))
    await killDaemon(lab(), 'host3')
    const { exitCode, json, stderr } = await ask('host3', 'doctor', '--bundle', archive)
    expect(bad(json.findings)).toEqual(['daemon', 'overlay-device'])
    expect(json.findings.map(({ check }: { check: string }) => check)).not.toContain('large-packets')
    expect(exitCode).toBe(1)
    expect(stderr).toMatch(/holds, with secrets masked:\n[\s\S]*state-status\.json[\s\S]*daemon\.log/)
    const log = await run(['tar', '-xOzf', archive, 'bundle/daemon.log'])
    expect(log).toBe(readFileSync(hostFiles('ward', 'host3').log, 'utf8'))
    const { json: ladder } = await ask('host1', 'ping', 'host3', '-n', '1')
    expect(ladder.rungs[1].text).toContain('UDP port 8472 is refused')
    expect(await ask('host3', 'status')).toMatchObject({ exitCode: 4, json: { daemon: 'dead' } })
    await lab().heal('host3')
    expect(await ask('host3', 'status')).toMatchObject({ exitCode: 0, json: { daemon: 'running' } })
  })
})
