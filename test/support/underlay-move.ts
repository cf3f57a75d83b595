// A lab whose hosts get other addresses on the underlay while their daemons run, as a DHCP server may do it.
import { expect, test } from 'vitest'
import type { LabOptions } from '../../src/lab/plan.ts'
import { countersOf, eventually, identityOf, imbalanceOf, labUnderTest, logOf } from './lab-under-test.ts'
import { ip } from './own-namespace.ts'

/** The address is left alone for 5 s, then it takes a moment; fails at three times as much. */
const MOVED_WITHIN_MS = 6_500
const LIMIT_MS = 3 * MOVED_WITHIN_MS
/** From the number of an address to that of the next one. */
const DISTANCE = 100
const HOSTS = ['host1', 'host2'] as const

/** Two hosts that change their addresses at once keep device, lease and pods. */
export function movesItsUnderlay(
  about: string,
  { andBack = false, ...options }: Partial<LabOptions> & { readonly name: string; readonly andBack?: boolean },
): void {
  const lab = labUnderTest({ hosts: 2, pods: 1, ...options })
  const on = (host: string, ...words: string[]) => ip('-n', lab().namespace(host), ...words)
  const overIpv6 = options.family === 'ipv6'
  const [family, device] = overIpv6 ? (['-6', 'flannel-v6.1'] as const) : (['-4', 'flannel.1'] as const)
  const deviceIndex = (host: string) => /^\d+/.exec(on(host, '-o', 'link', 'show', device))![0]
  const routes = (host: string) => on(host, family, 'route', 'show', 'dev', device)
  const state = () =>
    HOSTS.map((host) => [identityOf(lab(), host), deviceIndex(host), lab().host(host).daemonPid, routes(host)])

  /** Gives the host another address in place of the one it has, and tells which. */
  function readdress(host: string, distance: number): { host: string; now: string } {
    const old = /inet6? (\S+)/.exec(on(host, family, 'address', 'show', 'dev', 'eth0'))![1]!
    const [, network, last, length] = /^(.*[.:])(\d+)(\/\d+)$/.exec(old)!
    const now = `${network}${Number(last) + distance}`
    on(host, 'address', 'delete', old, 'dev', 'eth0')
    on(host, 'address', 'add', `${now}${length}`, 'dev', 'eth0', ...(overIpv6 ? ['nodad'] : []))
    return { host, now }
  }

  async function move(distance: number, moves: number): Promise<void> {
    const before = state()
    const generations = () => HOSTS.map((host) => lab().host(host).status?.generation ?? 0)
    const tables = generations()
    const addresses = HOSTS.map((host) => readdress(host, distance))
    const start = performance.now()
    const ping = () => lab().exec('pod1.1', ['ping', '-n', '-c', '1', '-W', '1', lab().endpoint('pod2.1').address])
    await expect.poll(async () => (await ping()).exitCode, { timeout: LIMIT_MS, interval: 100 }).toBe(0)
    console.log(`back after ${((performance.now() - start) / 1000).toFixed(1)} s`)
    expect(await lab().ping('pod2.1', 'pod1.1', { count: 10 })).toMatchObject({ received: 10 })
    for (const { host, now } of addresses) {
      await eventually(() => {
        const status = lab().host(host).status
        expect([status?.state, status?.node?.underlayAddress, status?.lease?.publicIp]).toEqual(['ready', now, now])
        expect(logOf(lab(), host).filter(({ event }) => event === 'underlay-moved')).toHaveLength(moves)
      })
    }
    expect(state()).toEqual(before)
    // Each has heard of the other's new address; workers made anew count on.
    await eventually(() => expect(generations()).toEqual(tables.map((generation) => generation + 1)))
    await eventually(() => expect(imbalanceOf(countersOf(lab(), 'host1'))).toEqual({ packets: 0, bytes: 0 }))
  }

  test(`${about} keep device, lease and pods`, () => move(DISTANCE, 1), 2 * LIMIT_MS)

  if (andBack) test('and as well when they get back those that they had', () => move(-DISTANCE, 2), 2 * LIMIT_MS)
}
