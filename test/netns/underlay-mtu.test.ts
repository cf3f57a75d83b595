// The underlay of two hosts gets a smaller MTU while their daemons run, and then its old one: everything follows, and
// no packet that fits both is lost.
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { OVERHEAD_BYTES } from '../../dataplane/index.ts'
import { hostFiles } from '../../src/lab/lab-state.ts'
import { countersOf, eventually, imbalanceOf, labUnderTest, logOf, newDrops } from '../support/lab-under-test.ts'
import { ip } from '../support/own-namespace.ts'
import { SteadyPing } from '../support/steady-ping.ts'

const FOLLOWED_WITHIN_MS = 5000
const LIMIT_MS = 3 * FOLLOWED_WITHIN_MS
const PINGS = 300
/** Payload of a ping that fits the smaller MTU, and of one that fits the larger only. */
const [FITTING, TOO_LARGE] = [1200, 1400]

const HOSTS = ['host1', 'host2'] as const
const lab = labUnderTest({ name: 'mtu', hosts: 2, pods: 1, kernel: ['host2'] })
const on = (host: string, ...words: string[]) => ip('-n', lab().namespace(host), ...words)

/** MTUs of the overlay, wherever they can be read. */
const told = () =>
  HOSTS.map((host) => [
    lab().host(host).status?.node?.mtu,
    Number(/ mtu (\d+) /.exec(on(host, 'link', 'show', 'flannel.1'))?.[1]),
    Number(/^FLANNEL_MTU=(\d+)$/m.exec(readFileSync(hostFiles(lab().name, host).subnetFile, 'utf8'))?.[1]),
  ])

/** Gives all underlay interfaces that MTU; resolves with the milliseconds until it is followed everywhere. */
async function change(mtu: number): Promise<number> {
  const start = performance.now()
  for (const host of HOSTS) on(host, 'link', 'set', 'eth0', 'mtu', String(mtu))
  const overlay = mtu - OVERHEAD_BYTES.vxlan
  await eventually(() => expect(told()).toEqual(HOSTS.map(() => [overlay, overlay, overlay])), LIMIT_MS)
  return performance.now() - start
}

const pings = (from: string, to: string, payloadBytes: number) =>
  new SteadyPing(lab().namespace(from), to, payloadBytes)

/** What the engine and the devices of both hosts say of packets that are missing. */
const whereabouts = () =>
  HOSTS.map((host) => [
    JSON.stringify(newDrops({}, countersOf(lab(), host))),
    on(host, '-s', '-s', 'link', 'show'),
  ]).join()

test(
  'a userspace and a kernel host follow a smaller and a larger one, and pings 10 ms apart lose nothing',
  async () => {
    const small = pings('pod1.1', '10.244.2.2', 56)
    const large = pings('pod1.1', '10.244.2.2', FITTING)
    const back = pings('pod2.1', '10.244.1.2', FITTING)
    const pids = HOSTS.map((host) => lab().host(host).daemonPid)
    const times = [await change(1400)]
    const refused = ['ping', '-n', '-c', '1', '-W', '10', '-M', 'do', '-s', String(TOO_LARGE), '10.244.2.2']
    expect((await lab().exec('pod1.1', refused)).stdout).toContain('mtu = 1350')
    times.push(await change(1500))
    console.log(`followed after ${times.map((ms) => `${Math.round(ms)} ms`).join(' and ')}`)
    const results = await Promise.all([small, large, back].map((ping) => ping.first(PINGS)))
    expect(results, whereabouts()).toEqual(results.map(() => ({ sent: PINGS, lost: [] })))
    expect(HOSTS.map((host) => lab().host(host).daemonPid)).toEqual(pids)
    const events = (host: string) => logOf(lab(), host).filter(({ event }) => /mtu-changed|restored/.test(event))
    const names = () => HOSTS.map((host) => events(host).map(({ event }) => event))
    await expect.poll(names).toEqual(HOSTS.map(() => ['mtu-changed', 'mtu-changed']))
    await eventually(() => expect(imbalanceOf(countersOf(lab(), 'host1'))).toEqual({ packets: 0, bytes: 0 }))
  },
  3 * LIMIT_MS,
)
