// Two hosts with DF set and a router between them that can be given a smaller MTU. Before each test the way is whole, and
// nobody remembers another one.
import { beforeAll, beforeEach, expect } from 'vitest'
import type { Lab } from '../../src/lab/lab.ts'
import { LabRouter } from './lab-router.ts'
import { eventually, labUnderTest } from './lab-under-test.ts'
import { startTransfer } from './transfer.ts'

export const ROUTER_MTU = 1400
export const OVERLAY_MTU = 1450
/** Largest packet of pods that the router passes whole: 1400 less what VXLAN over IPv4 adds. */
export const WHOLE = 1350
const UNDERLAY_MTU = 1500
/** TCP goes on within two seconds; fails at three times as much. */
export const TCP_STALL_LIMIT_MS = 6000
/** Limits are looked at again every five seconds. */
export const FORGOTTEN_WITHIN_MS = 15_000

export interface ToldWay {
  lab(): Lab
  router(): LabRouter
  /** What a host says of the way to the other one. */
  pathMtu(host?: string): number | null | undefined
  /** What is done before each test. */
  forget(): Promise<void>
}

export function toldWay(name: string): ToldWay {
  const lab = labUnderTest({ name, hosts: 2, pods: 1, daemonArguments: ['--outer-df', 'set'] })
  let router: LabRouter
  beforeAll(async () => {
    router = await LabRouter.between(lab())
  })
  const pathMtu = (host = 'host1') => lab().host(host).status?.peers[0]?.pathMtu
  const forget = async () => {
    router.passes(UNDERLAY_MTU)
    const all = ['host1', 'host2', 'pod1.1', 'pod2.1']
    await Promise.all(all.map((where) => lab().exec(where, ['ip', 'route', 'flush', 'cache'])))
    await eventually(() => expect([pathMtu('host1'), pathMtu('host2')]).toEqual([null, null]), FORGOTTEN_WITHIN_MS)
  }
  beforeEach(forget)
  return { lab, router: () => router, pathMtu, forget }
}

/** Pings of so many bytes, whole packets; all that was said. */
export async function pings(lab: Lab, from: string, to: string, bytes: number, df: 'do' | 'dont', count = 3) {
  const words = ['-n', '-c', String(count), '-i', '0.2', '-W', '5', '-M', df, '-s', String(bytes - 28)]
  const { stdout, stderr } = await lab.exec(from, ['ping', ...words, lab.endpoint(to).address])
  return stdout + stderr
}

/** The route of a pod to another, with the MTU that it has learnt. */
export async function routeOf(lab: Lab, from: string, to: string): Promise<string> {
  return (await lab.exec(from, ['ip', 'route', 'get', lab.endpoint(to).address])).stdout
}

/** A transfer under which the way shrinks, and for how long nothing came at most. */
export async function transferOverShrinkingWay({ lab, router }: ToldWay, from: string, to: string): Promise<number> {
  const size = { mebibytes: 40, seconds: 2.5, held: true }
  const transfer = await startTransfer(lab().endpoint(from), lab().endpoint(to), size)
  await transfer.begun
  router().passes(ROUTER_MTU)
  await expect.poll(() => routeOf(lab(), from, to)).toMatch(new RegExp(`\\bmtu ${WHOLE}\\b`))
  expect(transfer.isRunning()).toBe(true)
  transfer.release()
  const { sent, received, longestGapMs } = await transfer.done
  expect(received).toBe(sent)
  console.log(`nothing came for ${longestGapMs} ms at most`)
  return longestGapMs
}
