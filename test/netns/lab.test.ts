// The lab as people use it: hosts and pods on this machine, faults and their repair, and nothing left afterwards.
import { existsSync, readFileSync, statSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { IDENTITY_DIRECTORY, namesIn, pidIn } from '../../src/daemon/running-daemons.ts'
import { SEAT_DIRECTORY } from '../../src/daemon/seats.ts'
import type { FlanneletteError } from '../../src/errors.ts'
import { attempt } from '../../src/host/command.ts'
import { Lab } from '../../src/lab/lab.ts'
import { labFiles } from '../../src/lab/lab-state.ts'
import { existingNamespaces } from '../../src/lab/namespaces.ts'
import { patient } from '../support/lab-under-test.ts'
import { ip } from '../support/own-namespace.ts'

const KERNEL = { hosts: 2, pods: 1, kernel: ['host1', 'host2'] }

/** Everything that a lab of that name could leave. */
async function traces(name: string): Promise<string[]> {
  const files = existsSync(labFiles(name).directory) ? [labFiles(name).directory] : []
  return [...(await existingNamespaces(name)), ...files]
}

/** Of a network namespace, as its seats are called. */
const inodeOf = (namespace: string) => statSync(`/run/netns/${namespace}`).ino

const refusal = async (action: Promise<unknown>) => (await action.catch((error: unknown) => error)) as FlanneletteError

describe('a lab of three hosts, one of them with the kernel as dataplane', () => {
  let lab: Lab
  beforeAll(async () => {
    lab = patient(await Lab.up({ name: 'three', hosts: 3, pods: 2, kernel: ['host2'] }))
  })
  afterAll(() => Lab.down('three'))

  test('lets every pod reach every other one', async () => {
    const results = await lab.pingAll()
    expect(results).toHaveLength(30)
    expect(results.filter((result) => result.received !== result.sent)).toEqual([])
  })

  test('gives each host the subnet of its number, each pod an address in it', () => {
    expect(lab.hosts.map((host) => host.subnet)).toEqual(['10.244.1.0/24', '10.244.2.0/24', '10.244.3.0/24'])
    expect(lab.pods.map((pod) => pod.address)).toEqual(
      [1, 2, 3].flatMap((host) => [`10.244.${host}.2`, `10.244.${host}.3`]),
    )
  })

  test('runs programs in pods, hosts and the switch', async () => {
    expect((await lab.exec('pod2.1', ['ip', '-br', 'address', 'show', 'eth0'])).stdout).toContain('10.244.2.2/24')
    expect((await lab.exec('host2', ['ip', 'route'])).stdout).toContain('dev flannel.1 proto 142 onlink')
    expect((await lab.exec('switch', ['ip', '-br', 'link'])).stdout).toContain('host3@')
    expect((await lab.exec('host1', ['sh', '-c', 'exit 7'])).exitCode).toBe(7)
  })

  test('gives pods the MTU of the overlay', async () => {
    expect(lab.hosts.map((host) => host.mtuBytes)).toEqual([1450, 1450, 1450])
    expect((await lab.exec('pod3.2', ['cat', '/sys/class/net/eth0/mtu'])).stdout).toBe('1450\n')
  })

  test('measures throughput between pods', async () => {
    const result = await lab.iperf('pod1.1', 'pod3.1', { seconds: 1 })
    expect(result).toMatchObject({ from: 'pod1.1', to: 'pod3.1', protocol: 'tcp' })
    expect(result.bitsPerSecond).toBeGreaterThan(1e6)
    const datagrams = await lab.iperf('pod1.1', 'pod3.1', { seconds: 1, udp: true, bitrate: '1M', lengthBytes: 500 })
    expect(datagrams.packets).toBeGreaterThan(100)
  })

  test('is found again by its name, from any process', async () => {
    const again = Lab.open('three')
    expect(again.host('host2').daemonPid).toBe(lab.host('host2').daemonPid)
    expect(again.report().pods).toHaveLength(6)
  })

  test('names what it has when something else is asked for', async () => {
    expect((await refusal(Promise.resolve().then(() => lab.host('host9')))).oneLine).toContain('host1, host2, host3')
    expect((await refusal(lab.fault({ kind: 'cut', hosts: ['host9'] }))).code).toBe('usage')
  })

  test('cannot be brought up twice', async () => {
    const error = await refusal(Lab.up({ name: 'three' }))
    expect(error.oneLine).toMatch(/is up already; .*lab down --name three/)
    expect(await lab.ping('pod1.1', 'pod2.1')).toMatchObject({ received: 1 })
  })

  describe('with faults', () => {
    test('a cut host loses its packets, the others do not, and healing repairs it', async () => {
      await lab.fault({ kind: 'cut', hosts: ['host3'] })
      expect(await lab.ping('pod1.1', 'pod3.1', { waitMs: 2000 })).toMatchObject({ sent: 1, received: 0 })
      expect(await lab.ping('pod1.1', 'pod2.1')).toMatchObject({ received: 1 })
      await lab.heal('host3')
      expect(await lab.ping('pod1.1', 'pod3.1')).toMatchObject({ received: 1 })
      expect(lab.report().faults).toEqual([])
    })

    test('loss loses about the share that was asked for', async () => {
      await lab.fault({ kind: 'loss', percent: 50 })
      const { sent, received } = await lab.ping('pod1.1', 'pod2.1', { count: 40, waitMs: 1000 })
      await lab.heal('loss')
      // Both directions must get through: a quarter, and 40 coins rarely fall outside these bounds.
      expect(sent).toBe(40)
      expect(received).toBeLessThan(30)
    })

    test('duplication delivers packets twice', async () => {
      await lab.fault({ kind: 'duplicate', percent: 100 })
      // With a count ping does not wait long for the last answer.
      const ping = async () => (await lab.exec('pod1.1', ['ping', '-c', '3', '-i', '0.1', '10.244.3.2'])).stdout
      await expect.poll(ping).toMatch(/3 received, \+\d+ duplicates/)
      await lab.heal()
    })

    test('a killed daemon is seen as dead, and healing starts it with the same lease', async () => {
      const before = lab.host('host1')
      await lab.fault({ kind: 'crash', host: 'host1' })
      expect(lab.host('host1')).toMatchObject({ alive: false, daemonPid: null, status: null })
      await lab.heal()
      const after = lab.host('host1')
      expect(after.daemonPid).not.toBe(before.daemonPid)
      expect(after.status).toMatchObject({ state: 'ready', lease: { subnet: '10.244.1.0/24' } })
      expect(await lab.ping('pod1.1', 'pod3.1')).toMatchObject({ received: 1 })
    })
  })
})

describe('a lab goes without a trace', () => {
  test('when it is taken down, and again when it is down already', async () => {
    const lab = await Lab.up({ name: 'gone', ...KERNEL })
    const pids = lab.hosts.map((host) => host.daemon?.pid)
    const identities = namesIn(IDENTITY_DIRECTORY).filter((name) =>
      pids.includes(pidIn(`${IDENTITY_DIRECTORY}/${name}`)!),
    )
    const seats = lab.hosts.map(({ namespace }) => `${inodeOf(namespace)}-1`)
    expect([identities.length, namesIn(SEAT_DIRECTORY)]).toEqual([2, expect.arrayContaining(seats)])
    await lab.fault({ kind: 'crash', host: 'host2' }) // a daemon that cannot take its own away
    expect(await lab.down()).toEqual({ daemons: 1, namespaces: 5, files: true })
    expect(await traces('gone')).toEqual([])
    const left = [...namesIn(IDENTITY_DIRECTORY), ...namesIn(SEAT_DIRECTORY)]
    expect(left.filter((name) => [...identities, ...seats].includes(name))).toEqual([])
    expect(pids.filter((pid) => existsSync(`/proc/${pid}`))).toEqual([])
    expect(await Lab.down('gone')).toEqual({ daemons: 0, namespaces: 0, files: false })
  })

  test('when a daemon does not start, whose last words are reported', async () => {
    const error = await refusal(Lab.up({ name: 'broken', ...KERNEL, daemonArguments: ['--no-such-flag'] }))
    expect(error.message).toMatch(/daemon of host\d ended at its start: .*--no-such-flag/)
    expect(await traces('broken')).toEqual([])
  })

  test('when it is interrupted while it comes up', async () => {
    const controller = new AbortController()
    const progress = (line: string) => {
      if (line.includes('daemons')) controller.abort(new Error('stopped'))
    }
    const error = await refusal(Lab.up({ name: 'halfway', ...KERNEL }, { progress, signal: controller.signal }))
    expect(error.message).toBe('stopped')
    expect(await traces('halfway')).toEqual([])
  })

  test('when it crashed: the next one of that name clears what is left', async () => {
    onTestFinished(async () => void (await Lab.down('crashed')))
    const first = await Lab.up({ name: 'crashed', ...KERNEL })
    ip('netns', 'delete', first.host('host1').namespace)
    const lines: string[] = []
    const second = await Lab.up({ name: 'crashed', ...KERNEL }, { progress: (line) => lines.push(line) })
    expect(lines[0]).toContain('1 of its namespaces are gone')
    expect(await patient(second).ping('pod1.1', 'pod2.1')).toMatchObject({ received: 1 })
    const strayed = first.hosts.filter((host) => existsSync(`/proc/${host.daemon?.pid}`))
    expect(strayed).toEqual([])
  })

  test('when the command that was to take it down was killed', async () => {
    onTestFinished(async () => void (await Lab.down('orphan')))
    const script = `import { Lab } from '${new URL('../../dist/src/lab/lab.js', import.meta.url).href}'
      await Lab.up({ name: 'orphan', hosts: 1, pods: 0, kernel: ['host1'] }, { owned: true })
      process.kill(process.pid, 'SIGKILL')`
    const killed = await attempt([process.execPath, '--input-type=module', '-e', script], { timeoutMs: 50_000 })
    expect(killed.exitCode).toBe(137)
    const first = Lab.open('orphan').host('host1').daemonPid
    const lines: string[] = []
    await Lab.up({ name: 'orphan', ...KERNEL }, { progress: (line) => lines.push(line) })
    expect(lines[0]).toContain('the command that held it is gone')
    expect(existsSync(`/proc/${first}`)).toBe(false)
  })

  test('and leaves another lab, whose name starts alike, alone', async () => {
    onTestFinished(async () => void (await Lab.down('twin2')))
    const [first, second] = await Promise.all([
      Lab.up({ name: 'twin', ...KERNEL }),
      Lab.up({ name: 'twin2', ...KERNEL, direct: true }),
    ])
    await first.down()
    expect(await traces('twin')).toEqual([])
    expect(await patient(second).ping('pod1.1', 'pod2.1')).toMatchObject({ received: 1 })
  })
})

describe('underlays', () => {
  test.each(['uso', 'wire'] as const)('%s has its offloads on every end, and passes packets', async (underlay) => {
    onTestFinished(async () => void (await Lab.down('links')))
    const lab = patient(await Lab.up({ name: 'links', ...KERNEL, underlay }))
    const feature = async (member: string, device: string, name: string) => {
      const shown = (await lab.exec(member, ['ethtool', '-k', device])).stdout
      return new RegExp(`^\\s*${name}: (on|off)`, 'm').exec(shown)?.[1]
    }
    for (const [member, device] of [
      ['host1', 'eth0'],
      ['switch', 'host2'],
    ] as const) {
      expect(await feature(member, device, 'tx-udp-segmentation')).toBe(underlay === 'uso' ? 'on' : 'off')
      expect(await feature(member, device, 'tx-checksumming')).toBe(underlay === 'uso' ? 'on' : 'off')
      expect(await feature(member, device, 'tcp-segmentation-offload')).toBe('off')
      expect(await feature(member, device, 'generic-receive-offload')).toBe(member === 'switch' ? 'off' : 'on')
    }
    expect(await lab.ping('pod1.1', 'pod2.1')).toMatchObject({ received: 1 })
  })
})

test('the machine’s own network is not touched', async () => {
  const picture = () =>
    ['link', 'address', 'route'].map((what) => ip('-o', what, 'show')).join('') +
    readFileSync('/proc/sys/net/ipv4/ip_forward', 'utf8')
  onTestFinished(async () => void (await Lab.down('quiet')))
  const before = picture()
  await Lab.up({ name: 'quiet', ...KERNEL })
  expect(picture()).toBe(before)
})
