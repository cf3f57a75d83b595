// ping and doctor where the short run has no time for it: paths that are cut or lose packets, limits, the other kind of
// host.
import { describe, expect, onTestFinished, test } from 'vitest'
import { mainProgram } from '../../src/lab/daemon-process.ts'
import { askInHost, verdictsOf } from '../support/ask-in-host.ts'
import { labUnderTest } from '../support/lab-under-test.ts'

const lab = labUnderTest({ name: 'clinic', hosts: 2, pods: 1, kernel: ['host2'] })
const ask = (host: string, ...words: string[]) => askInHost(lab(), host, ...words)

describe('ping', () => {
  test('holds on every rung from a kernel VTEP to us, by subnet', async () => {
    const { exitCode, json } = await ask('host2', 'ping', '10.244.1.0/24')
    expect(verdictsOf(json.rungs)).toBe('good good good good good')
    expect(exitCode).toBe(0)
  })

  test('a cut path fails at the underlay', async () => {
    onTestFinished(() => lab().heal())
    await lab().fault({ kind: 'cut', hosts: ['host1', 'host2'] })
    const { exitCode, json } = await ask('host1', 'ping', '192.168.56.12', '-n', '1')
    expect(verdictsOf(json.rungs)).toBe('good bad bad skipped skipped')
    expect(json.rungs[1].next).toContain('neither ICMP nor the tunnel answers')
    expect(exitCode).toBe(1)
  })

  test('packets that are lost are counted, and break no rung', async () => {
    onTestFinished(() => lab().heal())
    await lab().fault({ kind: 'loss', percent: 15 })
    const { exitCode, json } = await ask('host1', 'ping', 'host2', '-n', '20')
    expect(json.rungs[1]).toMatchObject({ verdict: 'warning', text: expect.stringMatching(/\d+ of 20 answered/) })
    expect(json.rungs[2]).toMatchObject({ verdict: 'warning', next: expect.stringContaining('packets are lost') })
    expect(exitCode).toBe(0)
  })

  test('a time limit is exit code 3; a word that is no node is 2', async () => {
    expect(await ask('host1', 'ping', 'host2', '--timeout', '1ms')).toMatchObject({
      exitCode: 3,
      json: { result: 'timeout' },
    })
    const wrong = await lab().exec('host1', [process.execPath, mainProgram(), 'ping', 'host9'])
    expect(wrong).toMatchObject({ exitCode: 2, stdout: '', stderr: expect.stringContaining('host1, host2') })
  })
})

describe('doctor', () => {
  test('finds nothing on a host with the kernel as dataplane', async () => {
    const { exitCode, json } = await ask('host2', 'doctor', '--peers', '--strict')
    expect(json).toMatchObject({ version: 1, healthy: true, warnings: 0 })
    expect(exitCode).toBe(0)
  })

  test('works for a user without rights, and says what it could not see', async () => {
    const user = ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups']
    const argv = [...user, process.execPath, mainProgram(), 'doctor', '-o', 'json']
    const { exitCode, stdout } = await lab().exec('host1', argv)
    const { findings, errors } = JSON.parse(stdout)
    const unseen = findings.filter(({ severity }: { severity: string }) => severity === 'unseen')
    const checks = unseen.map(({ check }: { check: string }) => check)
    expect(checks).toEqual(expect.arrayContaining(['tun-device', 'api-socket', 'port-owner', 'forward-policy']))
    expect({ exitCode, errors }).toEqual({ exitCode: 0, errors: 0 })
  })

  test('names the peer behind a cut path', async () => {
    onTestFinished(() => lab().heal())
    await lab().fault({ kind: 'cut', hosts: ['host1', 'host2'] })
    const { json } = await ask('host1', 'doctor', '--peers')
    const said = json.findings.filter(({ check }: { check: string }) => check === 'peer-matrix')
    expect(said).toMatchObject([
      { severity: 'error', message: expect.stringMatching(/192\.168\.56\.12 .* answers neither/) },
    ])
  })
})

describe.each([
  ['plain UDP', { backend: 'udp' }],
  ['the raw driver', { daemonArguments: ['--driver', 'raw'] }],
  ["Node's own sockets", { daemonArguments: ['--driver', 'dgram'] }],
  ['two workers and IPv6', { ipv6: true, daemonArguments: ['--workers', '2'] }],
] as const)('a healthy host with %s', (_, options) => {
  const other = labUnderTest({ name: 'annex', hosts: 2, pods: 1, ...options })

  test('has nothing to complain of, and reaches its peer on every rung', async () => {
    const { json } = await askInHost(other(), 'host1', 'doctor', '--peers', '--strict')
    expect(json).toMatchObject({ healthy: true, warnings: 0, peers: [{ whole: true, fragmented: true }] })
    const { exitCode, json: ladder } = await askInHost(other(), 'host1', 'ping', 'host2', '-n', '1')
    const rungs = 'ipv6' in options ? 6 : 5
    expect(verdictsOf(ladder.rungs)).toBe(Array(rungs).fill('good').join(' '))
    expect(exitCode).toBe(0)
  })
})
