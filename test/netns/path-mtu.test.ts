// A router with a smaller MTU between two hosts. DF clear: pods notice nothing. DF set: pods are told what passes, and where
// nobody tells them, doctor and ping find out.
import { beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { run } from '../../src/host/command.ts'
import { parseEcho } from '../../src/host/echo.ts'
import { askInHost } from '../support/ask-in-host.ts'
import { counter, countersOf, eventually, labUnderTest } from '../support/lab-under-test.ts'
import { LabRouter } from '../support/lab-router.ts'
import { startTransfer } from '../support/transfer.ts'

const ROUTER_MTU = 1400
const OVERLAY_MTU = 1450
/** 1400 less what VXLAN over IPv4 adds. */
const WHOLE = 1350
const [POD1, POD2] = ['10.244.1.2', '10.244.2.2']

const pings = (from: string, to: string, bytes: number, df: 'do' | 'dont', count = 3) =>
  ['ping', '-n', '-c', String(count), '-i', '0.2', '-W', '1', '-M', df, '-s', String(bytes - 28), to]

describe('DF clear', () => {
  const lab = labUnderTest({ name: 'cutroute', hosts: 2, pods: 1 })
  beforeAll(async () => (await LabRouter.between(lab())).passes(ROUTER_MTU))

  test('what is too large for the router is cut there, and arrives intact: pings and TCP, both ways', async () => {
    for (const [from, to] of [['pod1.1', POD2], ['pod2.1', POD1]] as const) {
      for (const [bytes, df] of [[OVERLAY_MTU, 'do'], [1500, 'dont']] as const) {
        const { stdout } = await lab().exec(from, pings(from, to, bytes, df))
        expect(parseEcho(stdout)).toMatchObject({ sent: 3, received: 3, tooBig: null })
      }
    }
    for (const [from, to] of [['pod1.1', 'pod2.1'], ['pod2.1', 'pod1.1']] as const) {
      const transfer = await startTransfer(lab().endpoint(from), lab().endpoint(to), { mebibytes: 1 })
      const { sent, received } = await transfer.done
      expect(received).toBe(sent)
    }
    expect((await lab().exec('pod1.1', ['ip', 'route', 'get', POD2])).stdout).not.toContain('mtu')
    const cut = await run(['nstat', '-asz', 'IpFragOKs'], { namespace: lab().namespace('switch') })
    expect(Number(/IpFragOKs\s+(\d+)/.exec(cut)?.[1])).toBeGreaterThan(0)
  })
})

describe('DF set', () => {
  const lab = labUnderTest({ name: 'toldroute', hosts: 2, pods: 1, daemonArguments: ['--outer-df', 'set'] })
  let router: LabRouter
  beforeAll(async () => {
    router = await LabRouter.between(lab())
  })
  /** Nobody remembers what was said before. */
  beforeEach(async () => {
    router.passes(1500)
    for (const where of ['host1', 'host2', 'pod1.1', 'pod2.1']) await lab().exec(where, ['ip', 'route', 'flush', 'cache'])
    await eventually(() => expect(lab().host('host1').status?.peers[0]?.pathMtu).toBeNull(), 15_000)
  })

  test('a pod is told what passes, its route remembers it, and status, metrics and counters say so', async () => {
    router.passes(ROUTER_MTU)
    const { stdout } = await lab().exec('pod1.1', pings('pod1.1', POD2, OVERLAY_MTU, 'do', 5))
    expect(stdout).toMatch(new RegExp(`From 10\\.244\\.1\\.0 .*Frag needed and DF set \\(mtu = ${WHOLE}\\)`))
    expect((await lab().exec('pod1.1', ['ip', 'route', 'get', POD2])).stdout).toContain(`mtu ${WHOLE}`)
    await eventually(() => expect(lab().host('host1').status?.peers[0]?.pathMtu).toBe(WHOLE))
    expect(counter(lab(), 'host1', 'path-mtu.lowered')).toBeGreaterThan(0)
  })
  test('TCP goes on when the router shrinks under it', async () => {
    const transfer = await startTransfer(lab().endpoint('pod1.1'), lab().endpoint('pod2.1'), { mebibytes: 48, seconds: 3 })
    await new Promise((resolve) => setTimeout(resolve, 1000))
    router.passes(ROUTER_MTU)
    const { sent, received } = await transfer.done
    expect(received).toBe(sent)
  })
})
