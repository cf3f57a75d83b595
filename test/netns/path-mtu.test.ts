// A router with a smaller MTU between two hosts. DF clear: pods notice nothing. DF set: pods are told what passes, and where
// nobody says so, doctor and ping find out.
import { beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { parseEcho } from '../../src/host/echo.ts'
import type { Lab } from '../../src/lab/lab.ts'
import { askInHost, verdictsOf } from '../support/ask-in-host.ts'
import { LabRouter } from '../support/lab-router.ts'
import { counter, countersOf, eventually, imbalanceOf, labUnderTest } from '../support/lab-under-test.ts'
import { sweep } from '../support/size-sweep.ts'
import { startTransfer } from '../support/transfer.ts'

const UNDERLAY_MTU = 1500
const ROUTER_MTU = 1400
const OVERLAY_MTU = 1450
/** 1400 less what VXLAN over IPv4 adds. */
const WHOLE = 1350
const BOTH_WAYS = [
  ['pod1.1', 'pod2.1'],
  ['pod2.1', 'pod1.1'],
] as const
const STALL_LIMIT_MS = 2000
/** Limits are looked at again every five seconds. */
const FORGOTTEN_WITHIN_MS = 15_000

/** Pings of so many bytes, whole packets. */
async function pings(lab: Lab, from: string, to: string, bytes: number, df: 'do' | 'dont', count = 3) {
  const words = ['-n', '-c', String(count), '-i', '0.2', '-W', '1', '-M', df, '-s', String(bytes - 28)]
  const { stdout, stderr } = await lab.exec(from, ['ping', ...words, lab.endpoint(to).address])
  return stdout + stderr
}

const routeOf = async (lab: Lab, from: string, to: string) =>
  (await lab.exec(from, ['ip', 'route', 'get', lab.endpoint(to).address])).stdout

describe('with DF clear', () => {
  const lab = labUnderTest({ name: 'cutway', hosts: 2, pods: 1 })

  test('what is too large for the router is cut there and arrives intact, both ways, and pods are told nothing', async () => {
    const router = await LabRouter.between(lab())
    router.passes(ROUTER_MTU)
    for (const [from, to] of BOTH_WAYS) {
      for (const [bytes, df] of [[OVERLAY_MTU, 'do'] as const, [1500, 'dont'] as const]) {
        const said = await pings(lab(), from, to, bytes, df)
        expect(parseEcho(said)).toMatchObject({ sent: 3, received: 3, tooBig: null })
      }
      const transfer = await startTransfer(lab().endpoint(from), lab().endpoint(to), { mebibytes: 1 })
      const { sent, received } = await transfer.done
      expect(received).toBe(sent)
      expect(await routeOf(lab(), from, to)).not.toContain('mtu')
    }
    expect(await router.cut()).toBeGreaterThan(0)
    expect(lab().host('host1').status).toMatchObject({ outerDf: 'clear', peers: [{ pathMtu: null }] })
  })
})

describe('with DF set', () => {
  const lab = labUnderTest({ name: 'toldway', hosts: 2, pods: 1, daemonArguments: ['--outer-df', 'set'] })
  let router: LabRouter
  const pathMtu = (host = 'host1') => lab().host(host).status?.peers[0]?.pathMtu

  beforeAll(async () => {
    router = await LabRouter.between(lab())
  })

  /** The way is whole again, and nobody remembers what was said of it. */
  const forget = async () => {
    router.passes(UNDERLAY_MTU)
    const all = ['host1', 'host2', 'pod1.1', 'pod2.1']
    await Promise.all(all.map((where) => lab().exec(where, ['ip', 'route', 'flush', 'cache'])))
    await eventually(() => expect([pathMtu('host1'), pathMtu('host2')]).toEqual([null, null]), FORGOTTEN_WITHIN_MS)
  }
  beforeEach(forget)

  test('a pod is told what passes and remembers it, status and counters say so, and every size has its answer', async () => {
    router.passes(ROUTER_MTU)
    const said = await pings(lab(), 'pod1.1', 'pod2.1', OVERLAY_MTU, 'do', 5)
    expect(said).toMatch(new RegExp(`From 10\\.244\\.1\\.0 .*Frag needed and DF set \\(mtu = ${WHOLE}\\)`))
    expect(await routeOf(lab(), 'pod1.1', 'pod2.1')).toMatch(new RegExp(`\\bmtu ${WHOLE}\\b`))
    await eventually(() => expect(pathMtu()).toBe(WHOLE))
    expect(counter(lab(), 'host1', 'path-mtu.lowered')).toBe(1)
    const sizes = [28, 576, WHOLE - 9, WHOLE - 1, WHOLE, WHOLE + 1, WHOLE + 8, OVERLAY_MTU, OVERLAY_MTU + 1]
    const expected = sizes.map((size) => [size, size <= WHOLE ? 'delivered' : 'told'])
    await pings(lab(), 'pod2.1', 'pod1.1', OVERLAY_MTU, 'do', 2) // the way back has a limit of its own to be learnt
    expect(await sweep(lab(), 'pod1.1', 'pod2.1', sizes, 'do', 4, WHOLE)).toEqual(expected)
    // Fragments of a pod that was told nothing are larger than the way takes as well.
    await lab().exec('pod1.1', ['ip', 'route', 'flush', 'cache'])
    const delivered = [...sizes, 3000].map((size) => [size, 'delivered'])
    expect(await sweep(lab(), 'pod1.1', 'pod2.1', [...sizes, 3000], 'dont')).toEqual(delivered)
    await eventually(() => expect(imbalanceOf(countersOf(lab(), 'host1'))).toEqual({ packets: 0, bytes: 0 }))
  })

  test.each(BOTH_WAYS)(
    'TCP from %s to %s goes on within two seconds when the way shrinks under it',
    async (from, to) => {
      const size = { mebibytes: 40, seconds: 2.5 }
      const transfer = await startTransfer(lab().endpoint(from), lab().endpoint(to), size)
      await new Promise((resolve) => setTimeout(resolve, 1000))
      expect(transfer.isRunning()).toBe(true)
      router.passes(ROUTER_MTU)
      const { sent, received, longestGapMs } = await transfer.done
      expect(received).toBe(sent)
      expect(longestGapMs).toBeLessThan(STALL_LIMIT_MS)
      console.log(`nothing came for ${longestGapMs} ms at most`)
      expect(await routeOf(lab(), from, to)).toMatch(new RegExp(`\\bmtu ${WHOLE}\\b`))
    },
  )

  test('a way that takes less than any host must is not believed in: what does not fit it is cut', async () => {
    router.passes(600)
    await pings(lab(), 'pod1.1', 'pod2.1', OVERLAY_MTU, 'do')
    await pings(lab(), 'pod2.1', 'pod1.1', OVERLAY_MTU, 'do')
    expect(parseEcho(await pings(lab(), 'pod1.1', 'pod2.1', OVERLAY_MTU, 'do'))).toMatchObject({ received: 3 })
    expect(counter(lab(), 'host1', 'path-mtu.ignored')).toBe(1)
    expect(pathMtu()).toBeNull()
    const raised = counter(lab(), 'host1', 'path-mtu.raised')
    await forget()
    await eventually(() => expect(counter(lab(), 'host1', 'path-mtu.raised')).toBe(raised + 1), FORGOTTEN_WITHIN_MS)
  })

  test('ping and doctor name what nobody else does: a hole in the MTU, and what to do', async () => {
    router.passes(ROUTER_MTU)
    await router.fallSilent()
    onTestFinished(() => router.speak())
    const { exitCode, json: ping } = await askInHost(lab(), 'host1', 'ping', 'host2', '-n', '1')
    expect(verdictsOf(ping.rungs)).toBe('good good good bad good')
    expect(ping.rungs[3].text).toBe(`${WHOLE} passes, ${WHOLE + 1} to 1450 vanish; expected 1450 (1500 − 50)`)
    expect(ping.rungs[3].next).toMatch(/set Backend\.MTU to 1400.*let ICMP "fragmentation needed".*--outer-df clear/)
    expect(exitCode).toBe(1)
    const { json: doctor } = await askInHost(lab(), 'host1', 'doctor', '--peers')
    const found = doctor.findings.filter(({ severity }: { severity: string }) => severity === 'error')
    expect(found).toMatchObject([
      {
        check: 'peer-matrix',
        message: expect.stringContaining(`up to ${WHOLE} bytes, those of ${WHOLE + 1} to 1450 vanish`),
        remedy: expect.stringContaining('set Backend.MTU to 1400'),
      },
    ])
  })
})
