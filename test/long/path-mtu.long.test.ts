// DF set and a router with a smaller MTU: what takes longer than the short suite has.
import { expect, onTestFinished, test } from 'vitest'
import { parseEcho } from '../../src/host/echo.ts'
import { askInHost } from '../support/ask-in-host.ts'
import { counter, eventually } from '../support/lab-under-test.ts'
import { sweep } from '../support/size-sweep.ts'
import {
  FORGOTTEN_WITHIN_MS,
  OVERLAY_MTU,
  pings,
  ROUTER_MTU,
  TCP_STALL_LIMIT_MS,
  toldWay,
  transferOverShrinkingWay,
  WHOLE,
} from '../support/told-way.ts'

const way = toldWay('longway')
const { lab, router, pathMtu, forget } = way
const BOTH_WAYS = [
  ['pod1.1', 'pod2.1'],
  ['pod2.1', 'pod1.1'],
] as const

test.each(BOTH_WAYS)('TCP from %s to %s goes on within two seconds when the way shrinks under it', async (from, to) => {
  expect(await transferOverShrinkingWay(way, from, to)).toBeLessThan(TCP_STALL_LIMIT_MS)
})

test('a way that takes less than any host must is not believed in: what does not fit it is cut, until it grows', async () => {
  const [ignored = 0, raised = 0] = ['ignored', 'raised'].map((what) => counter(lab(), 'host1', `path-mtu.${what}`))
  router().passes(600)
  for (const [from, to] of BOTH_WAYS) await pings(lab(), from, to, OVERLAY_MTU, 'do')
  const cut = parseEcho(await pings(lab(), 'pod1.1', 'pod2.1', OVERLAY_MTU, 'do'))
  expect(cut).toMatchObject({ received: 3, tooBig: null })
  await eventually(() => expect(counter(lab(), 'host1', 'path-mtu.ignored')).toBe(ignored + 1))
  expect(pathMtu()).toBeNull()
  await forget()
  await eventually(() => expect(counter(lab(), 'host1', 'path-mtu.raised')).toBe(raised + 1), FORGOTTEN_WITHIN_MS)
})

test('each size around the limit is delivered, or the pod is told, both ways', async () => {
  router().passes(ROUTER_MTU)
  for (const [from, to] of BOTH_WAYS) await pings(lab(), from, to, OVERLAY_MTU, 'do')
  const sizes = Array.from({ length: OVERLAY_MTU + 10 - 1300 }, (_, index) => 1300 + index)
  const expected = sizes.map((size) => [size, size <= WHOLE ? 'delivered' : 'told'])
  for (const [from, to] of BOTH_WAYS) {
    expect(await sweep(lab(), from, to, sizes, 'do', 4, WHOLE)).toEqual(expected)
  }
})

test('where pods are told, ping says so and finds nothing broken, and doctor notes it', async () => {
  router().passes(ROUTER_MTU)
  const { exitCode, json: ping } = await askInHost(lab(), 'host1', 'ping', 'host2', '-n', '1')
  expect(ping.rungs[3]).toMatchObject({ verdict: 'warning', text: expect.stringContaining('pods are told and adapt') })
  expect(exitCode).toBe(0)
  const { json: doctor } = await askInHost(lab(), 'host1', 'doctor', '--peers')
  const notes = doctor.findings.filter(({ message }: { message: string }) => message.includes('pods are told'))
  expect(notes.map(({ check }: { check: string }) => check).sort()).toEqual(['mtu', 'peer-matrix'])
})

test('a hole in the MTU is named by doctor with its size, for every peer that is asked', async () => {
  router().passes(ROUTER_MTU)
  await router().fallSilent()
  onTestFinished(() => router().speak())
  const { json: doctor } = await askInHost(lab(), 'host1', 'doctor', '--peers')
  expect(doctor.findings.filter(({ severity }: { severity: string }) => severity === 'error')).toMatchObject([
    {
      check: 'peer-matrix',
      message: expect.stringContaining(`up to ${WHOLE} bytes, those of ${WHOLE + 1} to 1450 vanish`),
      remedy: expect.stringContaining('set Backend.MTU to 1400'),
    },
  ])
})
