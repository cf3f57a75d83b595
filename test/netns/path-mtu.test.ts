// A router with a smaller MTU between two hosts. DF clear: pods notice nothing. DF set: pods are told what passes, and where
// nobody says so, doctor and ping find out. More of DF set is in test/long.
import { describe, expect, onTestFinished, test } from 'vitest'
import { echo } from '../../src/host/echo.ts'
import { askInHost, verdictsOf } from '../support/ask-in-host.ts'
import { LabRouter } from '../support/lab-router.ts'
import { counter, countersOf, eventually, imbalanceOf, labUnderTest } from '../support/lab-under-test.ts'
import { sweep } from '../support/size-sweep.ts'
import {
  OVERLAY_MTU,
  pings,
  ROUTER_MTU,
  routeOf,
  TCP_STALL_LIMIT_MS,
  toldWay,
  transferOverShrinkingWay,
  WHOLE,
} from '../support/told-way.ts'
import { startTransfer } from '../support/transfer.ts'

describe('with DF clear', () => {
  const lab = labUnderTest({ name: 'cutway', hosts: 2, pods: 1 })

  test('what is too large for the router is cut there and arrives intact, both ways, and pods are told nothing', async () => {
    const router = await LabRouter.between(lab())
    router.passes(ROUTER_MTU)
    for (const [from, to] of [
      ['pod1.1', 'pod2.1'],
      ['pod2.1', 'pod1.1'],
    ] as const) {
      for (const [bytes, df] of [[OVERLAY_MTU, 'do'] as const, [1500, 'dont'] as const]) {
        const options = { count: 3, packetBytes: bytes, dontFragment: df === 'do', waitMs: 5000 }
        const where = { namespace: lab().namespace(from) }
        const heard = await echo(lab().endpoint(to).address, options, where)
        expect(heard).toMatchObject({ sent: 3, received: 3, tooBig: null })
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
  const way = toldWay('toldway')
  const { lab, router, pathMtu } = way

  test('ping and doctor name what nobody else does: a hole in the MTU, and what to do', async () => {
    router().passes(ROUTER_MTU)
    await router().fallSilent()
    onTestFinished(() => router().speak())
    const { exitCode, json: ping } = await askInHost(lab(), 'host1', 'ping', 'host2', '-n', '1')
    expect(verdictsOf(ping.rungs)).toBe('good good good bad good')
    expect(ping.rungs[3].text).toBe(`${WHOLE} passes, ${WHOLE + 1} to 1450 vanish; expected 1450 (1500 − 50)`)
    expect(ping.rungs[3].next).toMatch(/set Backend\.MTU to 1400.*let ICMP "fragmentation needed".*--outer-df clear/)
    expect(exitCode).toBe(1)
    const { json: doctor } = await askInHost(lab(), 'host1', 'doctor')
    const errors = doctor.findings.filter(({ severity }: { severity: string }) => severity === 'error')
    expect(errors).toMatchObject([
      {
        check: 'large-packets',
        message: expect.stringMatching(/^large packets to 192\.168\.56\.12 .* vanish: .* those of 1450 bytes are not/),
        remedy: expect.stringContaining('flannelette ping 192.168.56.12'),
      },
    ])
  })

  test('a pod is told what passes and remembers it, status and counters say so, and every size has its answer', async () => {
    router().passes(ROUTER_MTU)
    const said: string[] = []
    const hear = async () => said.push(await pings(lab(), 'pod1.1', 'pod2.1', OVERLAY_MTU, 'do', 5)) && said.join('')
    await expect
      .poll(hear, { timeout: 20_000 })
      .toMatch(new RegExp(`From 10\\.244\\.1\\.0 .*Frag needed and DF set \\(mtu = ${WHOLE}\\)`))
    expect(await routeOf(lab(), 'pod1.1', 'pod2.1')).toMatch(new RegExp(`\\bmtu ${WHOLE}\\b`))
    await eventually(() => expect(pathMtu()).toBe(WHOLE))
    await eventually(() => expect(counter(lab(), 'host1', 'path-mtu.lowered')).toBe(1))
    // The way back has a limit of its own to be learnt.
    const back = () => pings(lab(), 'pod2.1', 'pod1.1', OVERLAY_MTU, 'do', 3)
    await expect.poll(back, { timeout: 20_000 }).toMatch(new RegExp(`mtu ?= ?${WHOLE}\\b`))
    const sizes = [28, 576, WHOLE - 9, WHOLE - 1, WHOLE, WHOLE + 1, WHOLE + 8, OVERLAY_MTU, OVERLAY_MTU + 1]
    const expected = sizes.map((size) => [size, size <= WHOLE ? 'delivered' : 'told'])
    expect(await sweep(lab(), 'pod1.1', 'pod2.1', sizes, 'do', 4, WHOLE)).toEqual(expected)
    // Packets of a pod that knows nothing are larger than the way takes, and so are its fragments.
    await lab().exec('pod1.1', ['ip', 'route', 'flush', 'cache'])
    const delivered = [...sizes, 3000].map((size) => [size, 'delivered'])
    expect(await sweep(lab(), 'pod1.1', 'pod2.1', [...sizes, 3000], 'dont')).toEqual(delivered)
    // Nor is it a hole for doctor.
    const { json } = await askInHost(lab(), 'host1', 'doctor')
    const found = json.findings.find(({ check }: { check: string }) => check === 'large-packets')
    expect(found).toMatchObject({ severity: 'ok', message: expect.stringContaining('192.168.56.12') })
    await eventually(() => expect(imbalanceOf(countersOf(lab(), 'host1'))).toEqual({ packets: 0, bytes: 0 }))
  })

  test('TCP goes on within two seconds when the way shrinks under it', async () => {
    expect(await transferOverShrinkingWay(way, 'pod1.1', 'pod2.1')).toBeLessThan(TCP_STALL_LIMIT_MS)
  })
})
