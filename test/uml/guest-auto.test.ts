// `--dataplane auto` on a kernel without vxlan, and on the same kernel once it has been given the module.
import { expect, test } from 'vitest'
import { guestHost, OUTSIDE_OVERLAY, STATE, startDaemonIn, statusIn } from '../support/guest-without-vxlan.ts'
import { bootedHost, doctorIn, placesInGuest } from '../support/guest-without-vxlan-tests.ts'
import { loadModule, mustRunIn, type UmlGuest } from '../support/uml-guest.ts'

const AUTO = ['--dataplane', 'auto']
const host = guestHost('file', AUTO)

/** With a count ping does not wait long for the last answer: then once more. */
const PATIENT = { timeout: 30_000 }
const REACHED = ' 0% packet loss'
const ping = (guest: UmlGuest) =>
  mustRunIn(guest, ['ping', '-n', '-q', '-c', '3', '-i', '0.5', '-W', '5', OUTSIDE_OVERLAY])
const kindOf = async (guest: UmlGuest) => {
  const links = await mustRunIn(guest, ['ip', '-json', '-details', 'link', 'show', 'flannel.1'])
  return (JSON.parse(links) as [{ linkinfo: { info_kind: string } }])[0].linkinfo.info_kind
}
const verdictIn = async (guest: UmlGuest) => {
  const { report } = await doctorIn(guest, placesInGuest(STATE))
  return report.findings.find(({ check }) => check === 'dataplane')
}

test('without the module our engine is taken, and log, status and doctor say why', async (context) => {
  const { guest, daemon } = bootedHost(host, context)
  expect(await statusIn(guest)).toMatchObject({
    dataplane: 'userspace',
    dataplaneWhy: 'auto: this kernel has no vxlan devices',
  })
  expect(daemon.output.stderr).toContain('userspace dataplane, chosen by auto: this kernel has no vxlan devices')
  expect(await verdictIn(guest)).toMatchObject({
    severity: 'ok',
    message: 'userspace dataplane (auto: this kernel has no vxlan devices)',
  })
  expect(await kindOf(guest)).toBe('tun')
  await expect.poll(() => ping(guest), PATIENT).toContain(REACHED)
})

test('with it the kernel is taken at the next start, and the node stays who it was', async (context) => {
  const { guest, daemon, overlay } = bootedHost(host, context)
  const before = await statusIn(guest)
  await loadModule(guest, 'vxlan')
  expect(await verdictIn(guest)).toMatchObject({ message: expect.stringContaining('by now the kernel can') })
  daemon.kill()
  await daemon.ended
  const next = await startDaemonIn(guest, 'vec0', AUTO)
  const status = await statusIn(guest)
  expect(status).toMatchObject({ dataplane: 'kernel', dataplaneWhy: 'auto: this kernel has vxlan devices' })
  expect([status?.node, status?.lease?.subnet]).toEqual([before?.node, before?.lease?.subnet])
  expect(next.output.stderr).toContain('kernel dataplane, chosen by auto: this kernel has vxlan devices')
  expect(await kindOf(guest)).toBe('vxlan')
  await expect.poll(() => ping(guest), PATIENT).toContain(REACHED)
  const back = ['ping', '-n', '-q', '-c', '3', '-i', '0.5', '-W', '5', overlay]
  await expect.poll(() => mustRunIn(guest.outside, back), PATIENT).toContain(REACHED)
})
