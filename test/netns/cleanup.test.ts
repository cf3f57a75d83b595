// What cleanup takes for ours, on a host of the test's own that runs no daemon.
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { expect, onTestFinished, test } from 'vitest'
import { parsePrefix } from '../../dataplane/wire/prefix.ts'
import { writeSubnetFile } from '../../src/config/subnet-file.ts'
import { planCleanup, runCleanup, stepText } from '../../src/daemon/cleanup.ts'
import { claimIdentity } from '../../src/daemon/identity-claim.ts'
import { readSeats, Seat } from '../../src/daemon/seats.ts'
import { attempt } from '../../src/host/command.ts'
import { mainProgram } from '../../src/lab/daemon-process.ts'
import { silentLog } from '../../src/log.ts'
import { ip, ownNamespace } from '../support/own-namespace.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

const NETWORK = parsePrefix('10.244.0.0/16')!
const SUBNET = parsePrefix('10.244.1.0/24')!

function emptyHost() {
  const directory = temporaryDirectory()
  const stateDirectory = `${directory}/state of mine`
  mkdirSync(stateDirectory)
  const subnetFile = `${directory}/subnet.env`
  writeSubnetFile(subnetFile, { network: NETWORK, subnet: SUBNET, ipv6: null, mtuBytes: 1450, ipMasq: false })
  const [identityDirectory, seatDirectory] = [`${directory}/identity`, `${directory}/seats`]
  const options = { subnetFile, stateDirectory, state: true, identityDirectory, seatDirectory }
  return { ...options, namespace: ownNamespace() }
}

test('a subnet.env that the node has no memory of stays, and what others made is no step', async () => {
  const host = emptyHost()
  writeFileSync(`${host.stateDirectory}/notes`, 'of somebody')
  ip('-n', host.namespace, 'link', 'add', 'flannel.1', 'type', 'bridge')
  ip('-n', host.namespace, 'link', 'set', 'flannel.1', 'up')
  ip('-n', host.namespace, 'route', 'add', '10.244.0.0/16', 'dev', 'flannel.1', 'proto', '143')
  const plan = await planCleanup(host)
  expect(plan.steps).toEqual([])
  expect(plan.kept).toEqual([expect.stringContaining('subnet.env stays')])
})

test('without the right to see rules and devices nothing is claimed of them', async () => {
  const words = [process.execPath, mainProgram(), 'cleanup', '--dry-run', '--state-dir', temporaryDirectory()]
  const result = await attempt(['setpriv', '--reuid', '65534', '--clear-groups', ...words])
  expect(result).toMatchObject({
    exitCode: 5,
    stderr: expect.stringMatching(/CAP_NET_ADMIN is missing; run it as root/),
  })
})

test('a device of ours speaks for the subnet.env; a file of others keeps its directory', async () => {
  const host = emptyHost()
  writeFileSync(`${host.stateDirectory}/notes`, 'of somebody')
  writeFileSync(`${host.stateDirectory}/mac`, '0a:00:00:00:00:01\n')
  ip('-n', host.namespace, 'link', 'add', 'flannel.9', 'type', 'bridge')
  ip('-n', host.namespace, 'link', 'set', 'flannel.9', 'up', 'alias', 'flannelette')
  ip('-n', host.namespace, 'address', 'add', '10.244.1.0/32', 'dev', 'flannel.9')
  ip('-n', host.namespace, 'route', 'add', '10.244.0.0/16', 'dev', 'flannel.9', 'proto', '142')
  const plan = await planCleanup(host)
  expect(plan.steps.map(stepText)).toEqual([
    'ip route delete 10.244.0.0/16 dev flannel.9 proto 142',
    'ip link delete dev flannel.9',
    `rm -f ${host.subnetFile}`,
    `rm -f '${host.stateDirectory}/mac'`,
  ])
  await runCleanup(host, plan)
  expect([existsSync(host.subnetFile), existsSync(`${host.stateDirectory}/notes`)]).toEqual([false, true])
  expect(await planCleanup(host)).toEqual({ steps: [], kept: [] })
})

/** A host with a device of ours, and the identity of a daemon that was killed. */
async function leftHost() {
  const host = emptyHost()
  ip('-n', host.namespace, 'link', 'add', 'flannel.9', 'type', 'bridge')
  ip('-n', host.namespace, 'link', 'set', 'flannel.9', 'alias', 'flannelette')
  const claim = () => claimIdentity({ publicIp: 0xc0000201, store: 'a store' }, silentLog, host.identityDirectory, 0)
  const giveUp = await claim()
  const [name] = readdirSync(host.identityDirectory)
  giveUp()
  const identity = `${host.identityDirectory}/${name}`
  writeFileSync(identity, '4194304\n')
  const devices = () => ip('-n', host.namespace, 'link', 'show')
  return { host, claim, identity, devices, plan: await planCleanup(host) }
}

test('what a daemon claims that was started between the plan and its run stays', async () => {
  const { host, claim, identity, devices, plan } = await leftHost()
  expect(plan.steps.map(stepText)).toEqual(
    expect.arrayContaining(['ip link delete dev flannel.9', `rm -f ${identity}`]),
  )
  const other = { stateDirectory: `${host.seatDirectory}/of/another`, subnetFile: host.subnetFile }
  const seat = new Seat(other, silentLog, host.seatDirectory)
  onTestFinished(() => seat.leave())
  await seat.take()
  await seat.announce({ devices: ['flannel.9'], networks: ['10.244.0.0/16'], tunnel: null })
  onTestFinished(await claim())
  const left = (await runCleanup(host, plan)).map(stepText)
  expect(left).toEqual([
    'ip link delete dev flannel.9',
    `rm -f ${identity}`,
    `rmdir --ignore-fail-on-non-empty ${host.identityDirectory}`,
  ])
  expect([existsSync(identity), existsSync(host.subnetFile)]).toEqual([true, true])
  expect(devices()).toContain('flannel.9')
  expect((await readSeats(host.seatDirectory)).map(({ pid }) => pid)).toEqual([process.pid])
})

test('nothing is taken while a daemon is just starting, of which nobody knows what it will use', async () => {
  const { host, claim, identity, devices, plan } = await leftHost()
  onTestFinished(await claim())
  await expect(runCleanup(host, plan)).rejects.toMatchObject({ code: 'device-busy' })
  expect(existsSync(identity)).toBe(true)
  expect(devices()).toContain('flannel.9')
})

test('on a read-only /run, where nobody can take a seat, all is taken away without one', async () => {
  const { host, devices } = await leftHost()
  const run = temporaryDirectory()
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'ro', 'tmpfs', run])
  onTestFinished(() => void execFileSync('umount', [run]))
  const readOnly = {
    ...host,
    identityDirectory: `${run}/flannelette/identity`,
    seatDirectory: `${run}/flannelette/seats`,
  }
  await runCleanup(readOnly, await planCleanup(readOnly))
  expect(existsSync(host.stateDirectory)).toBe(false)
  expect(devices()).not.toContain('flannel.9')
})

test('what a killed daemon noted in /run goes, with the directories', async () => {
  const host = emptyHost()
  for (const directory of [host.identityDirectory, host.seatDirectory]) mkdirSync(directory)
  writeFileSync(`${host.identityDirectory}/192.0.2.1-a`, '4194304\n')
  for (const name of ['1-1', 'lock']) writeFileSync(`${host.seatDirectory}/${name}`, '')
  const plan = await planCleanup(host)
  expect(await runCleanup(host, plan)).toEqual([])
  expect([existsSync(host.identityDirectory), existsSync(host.seatDirectory)]).toEqual([false, false])
  expect((await planCleanup(host)).steps).toEqual([])
})
