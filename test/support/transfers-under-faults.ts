// What must not hurt a pod's TCP connection, for the short and the long suite: loss and duplication on the underlay, a
// daemon that is killed and started again, a store that is gone meanwhile.
import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Lab } from '../../src/lab/lab.ts'
import { labFiles } from '../../src/lab/lab-state.ts'
import { countersOf, eventually, identityOf, imbalanceOf, killDaemon, labUnderTest } from './lab-under-test.ts'
import { startTransfer, type Transfer } from './transfer.ts'

/** For so long a transfer goes at full size that a daemon is to be killed under. */
const SECONDS = 3

export function describeTransfers({ mebibytes }: { readonly mebibytes: number }): void {
  describe(`${mebibytes} MiB from pod to pod have the right SHA-256`, () => {
    const lab = labUnderTest({ name: 'transfer', pods: 1, kernel: ['host2'] })

    test.each([
      ['pod1.1', 'pod3.1'],
      ['pod1.1', 'pod2.1'],
      ['pod2.1', 'pod3.1'],
    ])('from %s to %s', async (from, to) => {
      await expectIntact(lab(), from, to, mebibytes)
    })

    test.each(['host1', 'host3'])('with the books of %s balanced afterwards', async (host) => {
      await eventually(() => expect(imbalanceOf(countersOf(lab(), host))).toEqual({ packets: 0, bytes: 0 }))
    })
  })

  describe(`${mebibytes} MiB over a wire have the right SHA-256`, () => {
    const lab = labUnderTest({ name: 'killed', hosts: 2, pods: 1, underlay: 'wire' })

    test('with 1 % of the underlay’s packets lost and 1 % arriving twice', async () => {
      await lab().fault({ kind: 'loss', percent: 1 })
      await lab().fault({ kind: 'duplicate', percent: 1 })
      onTestFinished(() => lab().heal())
      await expectIntact(lab(), 'pod1.1', 'pod2.1', mebibytes)
      const { stdout } = await lab().exec('switch', ['nft', 'list', 'ruleset'])
      const [lost = 0, ...copied] = [...stdout.matchAll(/packets (\d+)/g)].map((match) => Number(match[1]))
      console.log(`${lost} packets lost, ${copied.join(' and ')} doubled`)
      // 700 full frames a MiB, of which one in a hundred is hit
      for (const hit of [lost, Math.max(...copied)]) expect(hit).toBeGreaterThan(mebibytes * 4)
    })

    test.each([
      ['sender', 'host1'],
      ['receiver', 'host2'],
    ])('although the daemon of the %s is killed and started again', async (_, host) => {
      const before = identityOf(lab(), host)
      const transfer = await heldTransfer(lab(), mebibytes)
      await killDaemon(lab(), host)
      expect(transfer.isRunning()).toBe(true)
      await lab().restart(host)
      transfer.release()
      const { sent, received } = await transfer.done
      expect(received).toBe(sent)
      expect(identityOf(lab(), host)).toEqual(before)
    })

    test('although the store is unreadable meanwhile: the daemon starts from what it remembers', async () => {
      const before = identityOf(lab(), 'host1')
      const transfer = await heldTransfer(lab(), mebibytes)
      await killDaemon(lab(), 'host1')
      const giveBack = takeStoreAway(lab())
      onTestFinished(giveBack)
      lab().startDaemon('host1')
      await eventually(() => expect(lab().host('host1').status?.state).toBe('degraded'))
      expect(transfer.isRunning()).toBe(true)
      expect(identityOf(lab(), 'host1')).toEqual(before)
      transfer.release()
      const { sent, received } = await transfer.done
      expect(received).toBe(sent)
      giveBack()
      await eventually(() => expect(lab().host('host1').status?.state).toBe('ready'), 60_000)
      expect(identityOf(lab(), 'host1')).toEqual(before)
    })
  })
}

async function expectIntact(lab: Lab, from: string, to: string, mebibytes: number): Promise<void> {
  const start = performance.now()
  const { sent, received } = await (await startTransfer(lab.endpoint(from), lab.endpoint(to), { mebibytes })).done
  console.log(`${from} → ${to}: ${mebibytes} MiB in ${((performance.now() - start) / 1000).toFixed(1)} s`)
  expect(received).toBe(sent)
  expect(received).toMatch(new RegExp(`^${mebibytes * 2 ** 20} [0-9a-f]{64}$`))
}

/** A transfer that has begun, of so many MiB at least, and that does not end before it is released. */
async function heldTransfer(lab: Lab, mebibytes: number): Promise<Transfer> {
  const size = { mebibytes, seconds: SECONDS, held: true }
  const transfer = await startTransfer(lab.endpoint('pod1.1'), lab.endpoint('pod2.1'), size)
  await transfer.begun
  return transfer
}

/** Puts a file in the place of the store's directory; root can read whatever chmod forbids. */
function takeStoreAway(lab: Lab): () => void {
  const { store } = labFiles(lab.name)
  renameSync(store, `${store}.away`)
  writeFileSync(store, 'not a directory\n')
  let away = true
  return () => {
    if (!away) return
    away = false
    rmSync(store)
    renameSync(`${store}.away`, store)
  }
}
