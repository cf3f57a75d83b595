// The daemon on a kernel without vxlan, at full size: transfers both ways, a bad network, a device without checksum
// offload. Figures are printed for the record; a guest is slow and proves function, not speed.
import { describe, expect, onTestFinished, test } from 'vitest'
import { expectIntact, guestHost, OUTSIDE_OVERLAY } from '../support/guest-without-vxlan.ts'
import { bootedHost, describeGuestWithoutVxlan } from '../support/guest-without-vxlan-tests.ts'
import { loadModule, mustRunIn, OUTSIDE, runIn, type UmlGuest } from '../support/uml-guest.ts'

const MEBIBYTES = 64

const host = guestHost()

describeGuestWithoutVxlan(host, MEBIBYTES)

/** netem's words, and the counters outside that show it did something. */
const FAULTS = [
  ['lost', 'loss 1%', ['TcpExtTCPOFOQueue']],
  ['out of order', 'delay 2ms reorder 1%', ['TcpExtTCPOFOQueue']],
  ['doubled', 'duplicate 1%', ['TcpExtTCPDSACKOldSent', 'TcpExtTCPDSACKOfoSent']],
  ['corrupted', 'corrupt 1%', ['UdpInCsumErrors']],
] as const

describe('a transfer with the right SHA-256 both ways', () => {
  test.for(FAULTS)('although 1 %% of what the guest sends is %s', async ([, words, evidence], context) => {
    const { guest, overlay } = bootedHost(host, context)
    const before = await countersOutside(guest, evidence)
    await withNetem(guest, words)
    const out = await expectIntact(guest, guest.outside, OUTSIDE_OVERLAY, MEBIBYTES)
    const back = await expectIntact(guest.outside, guest, overlay, MEBIBYTES)
    const seen = (await countersOutside(guest, evidence)) - before
    console.log(`${words}: ${out.toFixed(1)} MiB/s out, ${back.toFixed(1)} MiB/s in, ${evidence.join(' + ')} ${seen}`)
    expect(seen).toBeGreaterThan(0)
  })
})

/** Until the end of the test. */
async function withNetem(guest: UmlGuest, words: string): Promise<void> {
  await loadModule(guest, 'net/sched/sch_netem')
  await mustRunIn(guest, ['tc', 'qdisc', 'replace', 'dev', 'vec0', 'root', 'netem', ...words.split(' ')])
  onTestFinished(() => void runIn(guest, ['tc', 'qdisc', 'delete', 'dev', 'vec0', 'root']))
}

/** The sum of counters of the kernel outside, as nstat(8) names them. */
async function countersOutside(guest: UmlGuest, names: readonly string[]): Promise<number> {
  const shown = await mustRunIn(guest.outside, ['nstat', '-asz', ...names])
  return [...shown.matchAll(/^\w+ +(\d+)/gm)].reduce((sum, [, value]) => sum + Number(value), 0)
}

describe('an underlay device without checksum offload', () => {
  test('PROBE', async (context) => {
    const { guest, overlay, daemon } = bootedHost(host, context)
    await mustRunIn(guest, ['ethtool', '-K', 'vec0', 'tx', 'off'])
    onTestFinished(() => void runIn(guest, ['ethtool', '-K', 'vec0', 'tx', 'on']))
    try {
      const out = await expectIntact(guest, guest.outside, OUTSIDE_OVERLAY, 8)
      console.log(out)
    } finally {
      console.log(await mustRunIn(guest, ['cat', '/run/state/status.json']), daemon.output.stderr)
      console.log(overlay, OUTSIDE)
    }
  })
})
