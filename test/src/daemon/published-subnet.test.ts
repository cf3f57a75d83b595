// Docker options beside subnet.env: both say the same subnet, or there are no options.
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { formatPrefix } from '../../../dataplane/wire/prefix.ts'
import { publishedFiles } from '../../../src/daemon/published-subnet.ts'
import type { FlanneletteError } from '../../../src/errors.ts'
import { type Host, makeHost, started } from '../../support/agent-host.ts'
import { peerLease } from '../../support/peer-lease.ts'
import { settle } from '../../support/virtual-clock.ts'

const OLD = 'DOCKER_OPTS=" --bip=10.244.77.1/24 --ip-masq=true --mtu=1450"\n'

/** A host, and how a node on it is told where Docker options go. */
function dockerHost(config?: string | null) {
  const host = config === undefined ? makeHost() : makeHost(config)
  const path = `${host.directory}/run/docker_opts.env`
  const options = () => (existsSync(path) ? readFileSync(path, 'utf8') : null)
  const leave = (text: string, file = path) => {
    mkdirSync(`${host.directory}/run`, { recursive: true })
    writeFileSync(file, text)
  }
  return { host, wanted: { dockerOptsFile: path }, options, leave }
}

/** First host address and length, as both files have it. */
const subnetIn = (text: string | null) => /(?:FLANNEL_SUBNET=|--bip=)([\d.]+\/\d+)/.exec(text ?? '')?.[1]

/** Our subnet becomes another node's. */
function giveAway(host: Host, subnet: string): void {
  host.shared.edit(() => [{ ...peerLease(subnet, '192.0.2.9', '0a:00:00:00:00:09'), revision: 50 }])
}

describe('a start', () => {
  test('writes both of one subnet before it is ready; engine and node do not both masquerade', async () => {
    const { host, wanted, options } = dockerHost()
    await started(host, { ...wanted, ipMasq: true })
    expect(subnetIn(options())).toBe(subnetIn(host.env()))
    expect(options()).toContain('--ip-masq=false')
    expect(options()).toContain('DOCKER_OPT_MTU="--mtu=1450"\n')
  })

  test('takes options away that are not those of subnet.env before it asks the store', async () => {
    const { host, wanted, options, leave } = dockerHost(null)
    leave(OLD)
    const { agent } = host.boot(wanted)
    agent.start().catch(() => {})
    await settle()
    expect([agent.state, options()]).toEqual(['starting', null])
    expect(host.log.of('subnet-file-stale')).toHaveLength(1)
  })

  test('that gets another subnet has options of that one, and none of the old one while it waits', async () => {
    const { host, wanted, options } = dockerHost()
    const first = await started(host, wanted)
    const { subnet } = first.agent.local!
    const before = options()
    await first.agent.stop('keep')
    expect(options()).toBe(before)
    giveAway(host, formatPrefix(subnet!))
    const second = host.boot(wanted)
    let open = () => {}
    second.dataplane.gate = new Promise((resolve) => {
      open = resolve
    })
    const starting = second.agent.start()
    await settle()
    expect([options(), host.env()]).toEqual([null, null])
    open()
    await starting
    expect(options()).not.toBe(before)
    expect(subnetIn(options())).toBe(subnetIn(host.env()))
  })

  test('with the same subnet leaves the same bytes', async () => {
    const { host, wanted, options } = dockerHost()
    const first = await started(host, wanted)
    const before = [options(), host.env()]
    const files = [wanted.dockerOptsFile, host.subnetFile].map((path) => statSync(path).ino)
    await first.agent.stop('keep')
    await started(host, wanted)
    expect([options(), host.env()]).toEqual(before)
    // Not written again: a disk that is full by then takes nothing away.
    expect([wanted.dockerOptsFile, host.subnetFile].map((path) => statSync(path).ino)).toEqual(files)
    expect(host.log.of('subnet-file-stale')).toEqual([])
  })

  test.each([
    ['--subnet-file', 'a directory', { subnetFile: '/tmp' }],
    ['--subnet-file', 'where nothing can be made', { subnetFile: '/proc/none/subnet.env' }],
    ['--docker-opts-file', 'a directory', { dockerOptsFile: '/tmp' }],
  ])('whose %s is %s ends before the store knows of it, also while the store is away', async (flag, _, files) => {
    const host = makeHost()
    const { agent, dataplane } = host.boot(files)
    const failure = { code: 'usage', exitCode: 2, oneLine: expect.stringContaining(`choose another with ${flag}`) }
    await expect(agent.start()).rejects.toMatchObject(failure)
    expect([host.shared.book().leases(), dataplane.local, host.env()]).toEqual([[], null, null])
    host.shared.setOutage('away')
    await expect(host.boot({ ...files }).agent.start()).rejects.toMatchObject(failure)
  })

  test('that cannot write one of them leaves neither, and names the flag', async () => {
    const { host, wanted, options, leave } = dockerHost()
    leave('')
    const inFile = { dockerOptsFile: `${wanted.dockerOptsFile}/x` }
    const error = await started(host, inFile).catch((one: FlanneletteError) => one.oneLine)
    expect(error).toMatch(/cannot be written.*--docker-opts-file/)
    expect(host.env()).toBeNull()
    const envInFile = { ...wanted, subnetFile: `${wanted.dockerOptsFile}/x` }
    await expect(started(host, envInFile)).rejects.toThrow(/cannot be written/)
    expect(options()).toBeNull()
  })
})

test('a lost lease takes both away', async () => {
  const { host, wanted, options } = dockerHost()
  const { agent } = await started(host, wanted)
  giveAway(host, formatPrefix(agent.local!.subnet!))
  await agent.lost
  expect([options(), host.env()]).toEqual([null, null])
})

test('a stop with removal takes both away', async () => {
  const { host, wanted, options } = dockerHost()
  const { agent } = await started(host, wanted)
  await agent.stop('remove')
  expect([options(), host.env()]).toEqual([null, null])
})

test('cleanup takes options that were made from subnet.env, and no others', async () => {
  const { host, wanted, leave } = dockerHost()
  await started(host, wanted)
  const files = { subnetFile: host.subnetFile, ...wanted }
  expect(publishedFiles(files)).toEqual([wanted.dockerOptsFile, host.subnetFile])
  leave(OLD)
  expect(publishedFiles(files)).toEqual([host.subnetFile])
})
