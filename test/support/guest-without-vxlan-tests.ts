// What a host without the vxlan module must be able to do, for the short and the whole suite.
import { describe, expect, type TestContext, test } from 'vitest'
import { isKernelAtLeast } from '../../dataplane/io/kernel-release.ts'
import { mainProgram } from '../../src/lab/daemon-process.ts'
import { numbersTo, pingsIn, pingWords } from './answered.ts'
import {
  expectIntact,
  foundFeatures,
  type GuestHost,
  OUTSIDE_OVERLAY,
  releaseOf,
  STATE,
  SUBNET_FILE,
} from './guest-without-vxlan.ts'
import { guestObstacle, mustRunIn, type Place, runIn, type UmlGuest } from './uml-guest.ts'

/** TUN_F_ bits: checksum, TSO for both families; USO for both. */
const TSO = 0x07
const USO = 0x60

const PINGS = 3

export interface GuestTestSizes {
  /** Of a transfer. */
  readonly mebibytes: number
  /** Whether doctor measures all peers. */
  readonly asksPeers: boolean
}

export function describeGuestWithoutVxlan(
  host: () => GuestHost | null,
  { mebibytes, asksPeers }: GuestTestSizes,
): void {
  describe('a host whose kernel has no vxlan', () => {
    test('is what the guest is: the kernel refuses to make such a device', async (context) => {
      const { guest } = bootedHost(host, context)
      const device = ['link', 'add', 'vxlan0', 'type', 'vxlan', 'id', '1', 'dev', 'vec0', 'dstport', '4789']
      const { exitCode, stderr } = await runIn(guest, ['ip', ...device])
      expect(exitCode).not.toBe(0)
      expect(stderr).toContain('Unknown device type')
    })

    test('gets the offloads that its kernel has, and no others', async (context) => {
      const { guest, daemon } = bootedHost(host, context)
      const release = await releaseOf(guest)
      const { offloads, maxSegments, receivesMerged } = foundFeatures(daemon)
      console.log(
        `guest ${release}: offloads ${offloads}, ${maxSegments} segments a send, merged receive ${receivesMerged}`,
      )
      expect(offloads).toBe(isKernelAtLeast(release, [6, 2, 0]) ? TSO | USO : TSO)
      expect(receivesMerged).toBe(true)
    })

    test('pings a kernel VTEP and is pinged by it', async (context) => {
      const { guest, overlay } = bootedHost(host, context)
      expect(await ping(guest, OUTSIDE_OVERLAY)).toEqual(numbersTo(PINGS))
      expect(await ping(guest.outside, overlay)).toEqual(numbersTo(PINGS))
    })

    test('is found good by doctor, and so is its peer if asked for: the userspace dataplane needs no vxlan', async (context) => {
      const { guest } = bootedHost(host, context)
      await mustRunIn(guest, ['sysctl', '-qw', 'net.ipv4.ip_forward=1'])
      const { exitCode, report } = await doctorIn(guest, [...(asksPeers ? ['--peers'] : []), ...placesInGuest(STATE)])
      expect(report.findings.filter(({ severity }) => severity === 'error' || severity === 'warning')).toEqual([])
      const messageOf = (check: string) => report.findings.find((finding) => finding.check === check)?.message
      expect(messageOf('vxlan-module')).toBe('the kernel may have no vxlan; the userspace dataplane needs none')
      expect(messageOf('tun-device')).toBe('/dev/net/tun opens')
      expect(messageOf('overlay-device')).toBe('flannel.1 is up')
      if (asksPeers)
        expect(report.peers).toEqual([expect.objectContaining({ refused: false, whole: true, fragmented: true })])
      expect(exitCode).toBe(0)
    })

    test(`sends ${mebibytes} MiB to a kernel VTEP and gets as many, with the right SHA-256`, async (context) => {
      const { guest, overlay } = bootedHost(host, context)
      const out = await expectIntact(guest, guest.outside, OUTSIDE_OVERLAY, mebibytes)
      const back = await expectIntact(guest.outside, guest, overlay, mebibytes)
      console.log(`guest: ${out.toFixed(1)} MiB/s out, ${back.toFixed(1)} MiB/s in`)
    })
  })
}

interface Report {
  readonly findings: readonly { readonly check: string; readonly severity: string; readonly message: string }[]
  readonly peers: readonly unknown[] | null
}

/** Words of doctor for a daemon with that state directory. */
export const placesInGuest = (state: string) => ['--state-dir', state, '--subnet-file', SUBNET_FILE]

/** Runs doctor in the guest; `within` gives the words that start its words elsewhere. */
export async function doctorIn(
  guest: UmlGuest,
  words: readonly string[],
  within: (words: readonly string[]) => Promise<readonly string[]> = async (same) => same,
): Promise<{ exitCode: number; report: Report }> {
  const argv = await within([process.execPath, mainProgram(), 'doctor', '-o', 'json', ...words])
  const { exitCode, stdout } = await runIn(guest, argv)
  return { exitCode, report: JSON.parse(stdout) as Report }
}

/** The host, or the end of the test with the reason why there is none. */
export function bootedHost(host: () => GuestHost | null, context: TestContext): GuestHost {
  const booted = host()
  if (booted === null) return context.skip(guestObstacle() ?? 'the guest did not boot')
  return booted
}

/** Numbers of the pings that were answered. */
async function ping(from: Place, address: string): Promise<readonly number[]> {
  return pingsIn(await mustRunIn(from, pingWords(address, PINGS))).answered
}
