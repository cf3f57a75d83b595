// A host whose clock is set by hours while its daemon runs: a guest, since only its clock is ours to set. Its store is an
// etcd outside, whose clock goes on as it did.
import { setTimeout as pause } from 'node:timers/promises'
import { expect, test, vi } from 'vitest'
import { flannelValue, PREFIX } from '../support/etcd-network.ts'
import type { EtcdServer } from '../support/etcd-server.ts'
import { type GuestHost, guestHost, statusIn } from '../support/guest-without-vxlan.ts'
import { bootedHost } from '../support/guest-without-vxlan-tests.ts'
import { SteadyPing } from '../support/steady-ping.ts'
import { mustRunIn, OUTSIDE, type UmlGuest } from '../support/uml-guest.ts'

/** A day less this is when the lease is renewed: a minute after the start, by a clock that nobody sets. */
const MARGIN_MINUTES = 1439
const RENEWAL_SECONDS = 60
const DAY_SECONDS = 86_400
/** What would be done in haste after a step is done by then. */
const AFTER_A_STEP_MS = 4000

/** The guest's kernel has no firewall, which would be said again and again. */
const host = guestHost('etcd', [
  ...['--subnet-lease-renew-margin', String(MARGIN_MINUTES)],
  '--iptables-forward-rules=false',
])

const uptimeOf = async (guest: UmlGuest) => Number.parseFloat(await mustRunIn(guest, ['cat', '/proc/uptime']))

function logOf({ daemon }: GuestHost) {
  const lines = daemon.output.stderr.split('\n').filter((line) => line.startsWith('{'))
  return lines.map((line) => JSON.parse(line) as { level: string; event: string; time: string })
}

const eventsOf = (booted: GuestHost, event: string) => logOf(booted).filter((line) => line.event === event)

/** Sets the guest's clock, and lets whatever feels that come. Gives the hours that it is ahead of ours. */
async function step(guest: UmlGuest, words: string): Promise<number> {
  const seconds = await mustRunIn(guest, ['date', '-s', words, '+%s'])
  const ahead = Math.round((Number(seconds) * 1000 - Date.now()) / 3_600_000)
  await pause(AFTER_A_STEP_MS)
  return ahead
}

/** Seconds that the etcd lease of the key has left. */
function secondsLeft(etcd: EtcdServer, key: string): number {
  const id = BigInt(/"lease":(\d+)/.exec(etcd.ctl('get', key, '-w', 'json'))?.[1] ?? 0).toString(16)
  return Number(/remaining\((\d+)s\)/.exec(etcd.ctl('lease', 'timetolive', id))?.[1])
}

test('set 3 h ahead and 3 h back: the lease stays ours, is renewed once, when it is due, and no ping is lost', async (context) => {
  const booted = bootedHost(host, context)
  const { guest, etcd, overlay } = booted
  const before = (await statusIn(guest))!
  const said = logOf(booted).length
  const lease = before.lease!
  const key = `${PREFIX}/subnets/${lease.subnet.replace('/', '-')}`
  const value = flannelValue(lease.publicIp, lease.vtepMac!)
  const ping = new SteadyPing(guest.namespace, overlay)

  for (const [words, hours] of [
    ['+3 hours', 3],
    ['-6 hours', -3],
  ] as const) {
    expect(await step(guest, words)).toBe(hours)
    const now = (await statusIn(guest))!
    expect(now).toMatchObject({ state: 'ready', generation: before.generation, peers: [{ publicIp: OUTSIDE }] })
    expect(now.lease).toMatchObject({ state: 'held', subnet: lease.subnet, revision: lease.revision })
    expect(now.health).toMatchObject({ live: true, ready: true })
  }
  expect(logOf(booted).slice(said)).toEqual([])

  const isRenewed = () => eventsOf(booted, 'lease-renewed').length > 0
  await vi.waitUntil(isRenewed, { timeout: 3 * RENEWAL_SECONDS * 1000, interval: 50 })
  const uptime = await uptimeOf(guest)
  await step(guest, '+3 hours')
  expect(
    logOf(booted)
      .slice(said)
      .map(({ event }) => event),
  ).toEqual(['lease-renewed'])
  expect(etcd!.ctl('get', '--print-value-only', key)).toBe(`${value}\n`)
  expect(DAY_SECONDS - secondsLeft(etcd!, key)).toBeLessThan(3 * RENEWAL_SECONDS)
  expect((await statusIn(guest))?.lease).toMatchObject({ state: 'held', subnet: lease.subnet })
  console.log(`renewed ${uptime.toFixed(0)} s after the boot`)
  const { sent, lost } = await ping.end()
  expect(sent).toBeGreaterThan(1000)
  expect(lost).toEqual([])
})
