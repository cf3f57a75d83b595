// The lab's commands as processes of their own: output that finds no taker, measurements that meet or are stopped, and
// what commands leave that were killed.
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { attempt } from '../../src/host/command.ts'
import { mainProgram } from '../../src/lab/daemon-process.ts'
import { iperf } from '../../src/lab/iperf.ts'
import { Lab } from '../../src/lab/lab.ts'
import { hostFiles, LABS_DIRECTORY, labFiles, readLabState, writeLabState } from '../../src/lab/lab-state.ts'
import { existingNamespaces } from '../../src/lab/namespaces.ts'
import { labUnderTest } from '../support/lab-under-test.ts'

const KERNEL = { hosts: 2, pods: 1, kernel: ['host1', 'host2'] }
const FLAGS = '--hosts 2 --pods 1 --kernel host1,host2'
/** Longer than any process can have. */
const NO_PID = 4_194_305

/** A command line of ours in a shell, `lab` for the program, with the exit code of its first part. */
const shell = (line: string) =>
  attempt(['bash', '-c', `lab() { ${process.execPath} ${mainProgram()} lab "$@"; }\n${line}\nexit \${PIPESTATUS[0]}`], {
    timeoutMs: 60_000,
  })

async function expectNoTrace(name: string): Promise<void> {
  expect(await existingNamespaces(name)).toEqual([])
  expect(existsSync(labFiles(name).directory)).toBe(false)
}

describe('a lab whose command cannot say what it did', () => {
  test.each([
    ['the reader of its progress is gone', '2>&1 | head -1', 130, /^[^\n]+\n$/],
    ['the reader of its report is gone', '2> /dev/null | true', 130, /^$/],
    ['the disk is full', '2>&1 > /dev/full', 1, /\nflannelette: standard output cannot be written: no space[^\n]+\n$/],
  ])('is removed again when %s', async (_, redirection, exitCode, words) => {
    onTestFinished(async () => void (await Lab.down('unheard')))
    const result = await shell(`lab up --name unheard ${FLAGS} ${redirection}`)
    expect(result).toMatchObject({ exitCode, stderr: '' })
    expect(result.stdout).toMatch(words)
    expect(result.stdout).not.toMatch(/unexpected|report it/)
    await expectNoTrace('unheard')
  })

  test('is removed when it is the demonstration', async () => {
    onTestFinished(async () => void (await Lab.down('brief')))
    const result = await shell('lab demo --once --name brief 2> /dev/null | head -3')
    expect(result).toMatchObject({ exitCode: 130, stderr: '' })
    expect(result.stdout.split('\n')).toHaveLength(4)
    await expectNoTrace('brief')
  })
})

test.each([
  ['the reader is gone', '2>&1 | true', 130, /^$/],
  ['the disk is full', '2>&1 > /dev/full', 1, /^flannelette: standard output cannot be written: no space[^\n]+\n$/],
])('a command that says all at its end notices that %s', async (_, redirection, exitCode, words) => {
  const result = await shell(`${process.execPath} ${mainProgram()} config show ${redirection}`)
  expect(result).toMatchObject({ exitCode, stdout: expect.stringMatching(words), stderr: '' })
})

describe('measurements', () => {
  const lab = labUnderTest({ name: 'busy', ...KERNEL })
  const servers = async () => (await lab().exec('pod2.1', ['ss', '-Hltn'])).stdout.split('\n').filter(Boolean)

  test('towards one pod may run at the same time', async () => {
    const both = [lab().iperf('pod1.1', 'pod2.1', { seconds: 1 }), lab().iperf('pod1.1', 'pod2.1', { seconds: 1 })]
    for (const result of await Promise.all(both)) expect(result.bitsPerSecond).toBeGreaterThan(1e6)
    expect(await servers()).toEqual([])
  })

  test('on a port that is taken say so', async () => {
    const [from, to] = [lab().endpoint('pod1.1'), lab().endpoint('pod2.1')]
    const enough = new AbortController()
    const first = iperf(from, to, { seconds: 60, port: 5300, signal: enough.signal })
    const ended = expect(first).rejects.toThrow('enough')
    await expect.poll(servers).toHaveLength(1)
    await expect(iperf(from, to, { seconds: 1, port: 5300 })).rejects.toMatchObject({
      code: 'host-command',
      oneLine: expect.stringMatching(/does not listen in pod2\.1 on port 5300: .*in use; wait until the other/),
    })
    enough.abort(new Error('enough'))
    await ended
    await expect.poll(() => programsIn(lab())).toEqual([])
  })

  test.each(['SIGTERM', 'SIGINT'] as const)('end on both sides by %s', async (name) => {
    const argv = [mainProgram(), 'lab', 'iperf', 'pod1.1', 'pod2.1', '--name', 'busy', '--time', '60']
    const child = spawn(process.execPath, argv, { stdio: 'ignore' })
    const ended = new Promise<number | null>((resolve) => child.on('exit', resolve))
    await expect.poll(servers, { timeout: 20_000 }).toHaveLength(1)
    child.kill(name)
    expect(await ended).toBe(130)
    await expect.poll(() => programsIn(lab())).toEqual([])
  })
})

/** Processes in both pods. */
async function programsIn(lab: Lab): Promise<string[]> {
  const pods = lab.pods.map(({ namespace }) => attempt(['ip', 'netns', 'pids', namespace]))
  return (await Promise.all(pods)).flatMap(({ stdout }) => stdout.split('\n').filter(Boolean))
}

describe('a command that was killed', () => {
  test('before it wrote down its daemons: they are found by their namespaces', async () => {
    onTestFinished(async () => void (await Lab.down('early')))
    const lab = await Lab.up({ name: 'early', ...KERNEL })
    const pids = lab.hosts.map((host) => host.daemon?.pid)
    const state = readLabState('early')!
    writeLabState({ ...state, phase: 'starting', starter: { pid: NO_PID, startTicks: 0 }, hosts: [], pods: [] })
    await Lab.down('early')
    await expectNoTrace('early')
    expect(pids).toHaveLength(2)
    expect(pids.filter((pid) => existsSync(`/proc/${pid}`))).toEqual([])
  })

  test('while it claimed a name: the half-made directory goes with the next lab, up or down', async () => {
    onTestFinished(async () => void (await Lab.down('claimed')))
    const half = `${LABS_DIRECTORY}/.claimed-${NO_PID}`
    const others = `${LABS_DIRECTORY}/.another-${process.pid}`
    const plant = () => {
      for (const directory of [half, others]) mkdirSync(directory, { recursive: true })
      writeFileSync(`${half}/.1-1.tmp`, '{"vers')
    }
    plant()
    await Lab.up({ name: 'claimed', ...KERNEL })
    expect([existsSync(half), existsSync(others)]).toEqual([false, true])
    plant()
    await Lab.down('claimed')
    expect([existsSync(half), existsSync(others)]).toEqual([false, true])
    await attempt(['rmdir', others])
  })
})

describe('a lab with IPv6', () => {
  labUnderTest({ name: 'six', ...KERNEL, ipv6: true })
  const lab = (words: string) => shell(`lab ${words} --name six`)

  test('shows the addresses of its pods', async () => {
    expect((await lab('status')).stdout).toMatch(
      /^POD +HOST +ADDRESS +IPV6\npod1\.1 +host1 +10\.244\.1\.2 +fd00:10:244:1::2$/m,
    )
  })

  test.each(['ping all -6', 'ping pod1.1 pod2.1 -6', 'ping pod1.1 fd00:10:244:2::2'])('answers: %s', async (words) => {
    const { exitCode, stdout } = await lab(words)
    expect(stdout).toMatch(/1 of 1 answered|2 of 2 pings answered/)
    expect(exitCode).toBe(0)
  })

  test('is measured: iperf -6', async () => {
    const { stdout } = await lab('iperf pod1.1 pod2.1 -6 -t 1 -o json')
    expect(JSON.parse(stdout).bitsPerSecond).toBeGreaterThan(1e6)
  })

  test('commands that change files of "this node" mean the host that they run on, not the machine', async () => {
    const onHost = (words: string) => shell(`lab exec --name six host1 -- flannelette ${words}`)
    const cleanup = await onHost('cleanup --dry-run')
    expect(cleanup).toMatchObject({ exitCode: 1, stdout: '' })
    expect(cleanup.stderr).toMatch(/a daemon \(pid \d+\) runs on this host/)
    expect(await onHost('docker-opts')).toMatchObject({ exitCode: 0, stderr: '' })
    const options = join(dirname(hostFiles('six', 'host1').subnetFile), 'docker_opts.env')
    expect(readFileSync(options, 'utf8')).toContain('--bip=10.244.1.1/24')
  })

  test('says that hosts have none', async () => {
    const result = await lab('ping pod1.1 host2 -6')
    expect(result).toMatchObject({ exitCode: 2, stdout: '' })
    expect(result.stderr).toContain('host2 has no IPv6 address; the underlay is IPv4: name pods')
  })
})
