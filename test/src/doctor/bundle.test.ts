// A bundle of a host with secrets in every place that is packed: flags, variables, status, config, CNI, log.
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { expect, onTestFinished, test } from 'vitest'
import { writeBundle } from '../../../src/doctor/bundle.ts'
import { gatherFacts } from '../../../src/doctor/gather.ts'
import { run } from '../../../src/host/command.ts'
import { status } from '../../support/doctor-facts.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

const SECRET = 'hunter2'

/** A process that looks like a daemon, with secrets in its flags and variables. Resolves when both can be read. */
async function daemon(): Promise<number> {
  const argv = [
    '-e',
    'console.log(); setInterval(() => {}, 1000)',
    'run',
    '--etcd-password',
    SECRET,
    `--token=${SECRET}`,
  ]
  const env = { ...process.env, FLANNELD_ETCD_PASSWORD: `${SECRET} two`, OTHER_SECRET: SECRET, FLANNELD_IFACE: 'eth7' }
  const child = spawn(process.execPath, argv, { env, stdio: ['ignore', 'pipe', 'ignore'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  await new Promise((resolve) => child.stdout.once('data', resolve))
  return child.pid ?? 0
}

/** The host: a state directory and a CNI directory. */
function plant(directory: string, pid: number) {
  const [stateDirectory, cniDirectory] = [`${directory}/state`, `${directory}/cni`]
  for (const path of [stateDirectory, cniDirectory]) mkdirSync(path)
  const why = `https://root:${SECRET}@192.0.2.1:2379 does not answer`
  const daemonStatus = status({ pid, store: { name: 'etcd', reachable: false, why } })
  writeFileSync(`${stateDirectory}/status.json`, JSON.stringify(daemonStatus, null, 2))
  const config = JSON.stringify({ Network: '10.244.0.0/16', Backend: { Type: 'ipsec', PSK: SECRET } })
  writeFileSync(`${stateDirectory}/lease.json`, JSON.stringify({ Version: 1, Config: config, Lease: {} }))
  writeFileSync(`${cniDirectory}/10-flannel.conflist`, `{"plugins": [{"type": "flannel", "token": "${SECRET}"}]}`)
  const key = `-----BEGIN EC PRIVATE KEY-----\n${SECRET}\n-----END EC PRIVATE KEY-----`
  writeFileSync(`${directory}/daemon.log`, `{"msg":"Authorization: Bearer ${SECRET}"}\n${key}\nlast line\n`)
  return { stateDirectory, cniDirectory, subnetFile: `${directory}/none.env`, engineOptionFiles: [], askPeers: false }
}

async function bundle(directory: string, pid: number): Promise<{ names: string[]; text: string }> {
  const host = plant(directory, pid)
  const [path, facts] = [`${directory}/out.tar.gz`, await gatherFacts(host)]
  const report = { text: `password: ${SECRET}\n`, json: '{}\n' }
  const { cniDirectory } = host
  const files = await writeBundle({ path, facts, report, logFile: `${directory}/daemon.log`, cniDirectory })
  const listed = await run(['tar', '-tzf', path])
  const names = files.map(({ name }) => name)
  for (const name of names) expect(listed).toContain(`out/${name}\n`)
  return { names, text: await run(['tar', '-xOzf', path]) }
}

test('a bundle holds what is needed and no secret', async () => {
  const { names, text } = await bundle(temporaryDirectory(), await daemon())
  expect(text).not.toContain(SECRET)
  for (const part of ['doctor.txt', 'doctor.json', 'state-status.json', 'state-lease.json', 'daemon.log']) {
    expect(names).toContain(part)
  }
  for (const part of ['ip-route.txt', 'nft-ruleset.txt', 'cni-10-flannel.conflist', 'ethtool-k-eth0.txt']) {
    expect(names).toContain(part)
  }
  expect(text).toMatch(/run --etcd-password ‹masked› --token=‹masked›\nFLANNELD_ETCD_PASSWORD=‹masked›\n/)
  expect(text).toContain('FLANNELD_IFACE=eth7')
  expect(text).toContain('https://root:‹masked›@192.0.2.1:2379 does not answer')
  expect(text).toContain('last line')
  expect(text).not.toContain('OTHER_SECRET')
})

test('a bundle works with a dead daemon', async () => {
  const { text } = await bundle(temporaryDirectory(), 4_194_305)
  expect(text).toContain('no daemon runs')
  expect(text).not.toContain(SECRET)
})

test('a bundle that cannot be written says so and leaves nothing', async () => {
  const directory = temporaryDirectory()
  const facts = await gatherFacts(plant(directory, 4_194_305))
  const path = `${directory}/not/there.tar.gz`
  await expect(writeBundle({ path, facts, report: { text: '', json: '' } })).rejects.toMatchObject({
    code: 'host-command',
    exitCode: 1,
  })
  expect(existsSync(path)).toBe(false)
  expect(readFileSync(`${directory}/daemon.log`, 'utf8')).toContain(SECRET) // the host itself is left alone
})
