// A daemon that is killed in the middle of a transfer and started again: the pods notice nothing but a pause, and the
// node keeps its identity.
import { readFileSync, renameSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Lab } from '../../src/lab/lab.ts'
import { hostFiles, labFiles } from '../../src/lab/lab-state.ts'
import { startTransfer } from '../support/transfer.ts'

const NAME = 'restart'
const FILES = hostFiles(NAME, 'host1')

/** What must not change with a restart. */
function identity(lab: Lab) {
  const { status } = lab.host('host1')
  return {
    subnet: status?.lease?.subnet,
    mac: status?.node?.mac,
    subnetFile: readFileSync(FILES.subnetFile, 'utf8'),
  }
}

describe('a daemon killed and started again', () => {
  let lab: Lab
  beforeAll(async () => {
    lab = await Lab.up({ name: NAME, hosts: 2, pods: 1, kernel: ['host2'] })
  })
  afterAll(() => Lab.down(NAME))

  const bytesSent = async () =>
    Number((await lab.exec('pod1.1', ['cat', '/sys/class/net/eth0/statistics/tx_bytes'])).stdout)

  test('keeps lease, MAC and subnet.env, and the transfer goes on', async () => {
    const before = identity(lab)
    const start = await bytesSent()
    const size = { mebibytes: 64, seconds: 3, held: true }
    const transfer = await startTransfer(lab.endpoint('pod1.1'), lab.endpoint('pod2.1'), size)
    await expect.poll(bytesSent, { timeout: 30_000 }).toBeGreaterThan(start + 1e6)
    await lab.fault({ kind: 'crash', host: 'host1' })
    await lab.heal()
    const afterRestart = await bytesSent()
    transfer.release()
    const { sent, received } = await transfer.done
    expect(received).toBe(sent)
    expect(await bytesSent()).toBeGreaterThan(afterRestart + 1e6)
    expect(identity(lab)).toEqual(before)
    const device = await lab.exec('host1', ['ip', '-br', 'link', 'show', 'flannel.1'])
    expect(device.stdout).toContain('UP')
  })

  test('does so too while the store cannot be read, and is ready when it is back', async () => {
    const before = identity(lab)
    const { store } = labFiles(NAME)
    await lab.fault({ kind: 'crash', host: 'host1' })
    renameSync(store, `${store}.away`)
    lab.startDaemon('host1')
    await expect.poll(() => lab.host('host1').status?.state, { timeout: 60_000 }).toBe('degraded')
    expect(await lab.ping('pod1.1', 'pod2.1', { count: 3 })).toMatchObject({ received: 3 })
    expect(identity(lab)).toEqual(before)
    renameSync(`${store}.away`, store)
    await expect.poll(() => lab.host('host1').status?.state, { timeout: 60_000 }).toBe('ready')
    expect(identity(lab)).toEqual(before)
  })

  test('comes up beside a strict reverse-path filter', async () => {
    const strict = 'for file in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 1 > $file; done'
    await lab.exec('host1', ['sh', '-c', strict])
    await lab.fault({ kind: 'crash', host: 'host1' })
    await lab.heal()
    expect(await lab.ping('pod2.1', 'pod1.1', { count: 3 })).toMatchObject({ received: 3 })
  })
})
