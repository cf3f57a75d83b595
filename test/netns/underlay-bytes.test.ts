// What leaves a host for the underlay is what the kernel's VXLAN would have sent for the same packet of a pod: host1
// sends the same packets twice, once with our dataplane and once with the kernel's, and the frames on its wire are
// compared.
import { beforeAll, describe, expect, test } from 'vitest'
import { describeLayers } from '../../dataplane/index.ts'
import { hexOf } from '../../dataplane/wire/field.ts'
import * as tcp from '../../dataplane/wire/tcp.ts'
import { startDaemon, waitReady } from '../../src/lab/daemon-process.ts'
import type { Lab } from '../../src/lab/lab.ts'
import type { AddressFamily } from '../../src/lab/ping.ts'
import { LAB_DEFAULTS } from '../../src/lab/plan.ts'
import { signal, waitGone } from '../../src/lab/process-identity.ts'
import { Capture } from '../support/capture.ts'
import { IPV6_PACKETS, type Packets } from '../support/ipv6-kinds.ts'
import { labUnderTest } from '../support/lab-under-test.ts'
import { NamespaceSocket } from '../support/namespace-socket.ts'
import { ip } from '../support/own-namespace.ts'
import { countingBytes, type IpOptions, icmpEcho, tcpPacket, udpPacket, viewOf } from '../support/packets.ts'
import { describeWireChecksums } from '../support/wire-checksums.ts'

const LAB = { name: 'bytes', hosts: 2, pods: 1, ipv6: true, underlay: 'wire' } as const
const payload = (length: number) => countingBytes(length)
/** Not what the checks of a stack expect, but what a router forwards. */
const lone = (fragmentWord: number): IpOptions => ({ fragmentWord })
const MORE = 0x2000
const FIRST_NUMBER = 0x1000

/** Packets of pod1.1 to pod2.1. Each goes out once. */
const IPV4_PACKETS: Packets = {
  'an echo request': (path) => icmpEcho(path),
  'an echo request without payload': (path) => icmpEcho({ ...path, payload: payload(0) }),
  'an echo request of odd length': (path) => icmpEcho({ ...path, payload: payload(57) }),
  'UDP without payload': (path) => udpPacket(path),
  'UDP of one byte': (path) => udpPacket({ ...path, payload: payload(1) }),
  'UDP of odd length': (path) => udpPacket({ ...path, payload: payload(777) }),
  'UDP that fills the MTU': (path) => udpPacket({ ...path, payload: payload(1422) }),
  'UDP one byte below the MTU': (path) => udpPacket({ ...path, payload: payload(1421) }),
  'UDP without a checksum': (path) => udpPacket({ ...path, payload: payload(64), checksum: 'unused' }),
  'UDP with a wrong checksum': (path) => udpPacket({ ...path, payload: payload(64), checksum: 'bad' }),
  'a first fragment': (path) => udpPacket({ ...path, ...lone(MORE), payload: payload(64) }),
  'a later fragment': (path) => udpPacket({ ...path, ...lone(9), payload: payload(64) }),
  'a TCP segment': (path) => tcpPacket({ ...path, payload: payload(100) }),
  'a TCP segment of odd length': (path) => tcpPacket({ ...path, payload: payload(1001) }),
  'a TCP segment that fills the MTU': (path) => tcpPacket({ ...path, payload: payload(1410) }),
  'a SYN with options': (path) =>
    tcpPacket({ ...path, flags: tcp.FLAG_SYN, tcpOptions: Uint8Array.of(2, 4, 5, 0x82, 1, 1, 4, 2) }),
  'a packet with DSCP': (path) => udpPacket({ ...path, tos: 0xb8, payload: payload(20) }),
  'ECT(1)': (path) => udpPacket({ ...path, tos: 1, payload: payload(20) }),
  'ECT(0)': (path) => tcpPacket({ ...path, tos: 2, payload: payload(20) }),
  CE: (path) => tcpPacket({ ...path, tos: 3, payload: payload(20) }),
  'CE with DSCP': (path) => icmpEcho({ ...path, tos: 0xbb }),
  'IPv4 without DF': (path) => udpPacket({ ...path, fragmentWord: 0, payload: payload(20) }),
  'a TTL about to end': (path) => udpPacket({ ...path, ttl: 2, payload: payload(20) }),
  'IPv4 options': (path) => udpPacket({ ...path, options: new Uint8Array(8).fill(1), payload: payload(20) }),
}

const FAMILIES: readonly (readonly [AddressFamily, Packets])[] = [
  [4, IPV4_PACKETS],
  [6, IPV6_PACKETS],
]
const NAMES = FAMILIES.flatMap(([, packets]) => Object.keys(packets))

/** Fields of the outer headers that a sender chooses as it likes, and the checksums over them. */
const FREE: readonly (readonly [layer: string, name: string])[] = [
  ['IPv4', 'identification'],
  ['IPv4', 'checksum'],
  ['UDP', 'sourcePort'],
  ['UDP', 'checksum'],
]

const notesOf = (frame: Uint8Array) => describeLayers(frame, 0, frame.length, 'ethernet')

/** The frame with its free outer fields blanked. */
function withoutFreeFields(frame: Uint8Array): string {
  const copy = frame.slice()
  const notes = notesOf(frame)
  for (const [layer, name] of FREE) {
    const outer = notes.find((note) => note.layer === layer && note.name === name)
    if (outer === undefined) throw new Error(`no ${layer} ${name} in the frame`)
    copy.fill(0, outer.at, outer.at + outer.length)
  }
  return hexOf(copy, ' ')
}

/** Sends every packet of a family once and gives the frames that leave host1 for them. */
async function framesOf(lab: Lab, [family, packets]: (typeof FAMILIES)[number]): Promise<Uint8Array[]> {
  const source = lab.endpoint('pod1.1', family).address
  const destination = lab.endpoint('pod2.1', family).address
  expect(await lab.ping('pod1.1', 'pod2.1', { family })).toMatchObject({ received: 1 }) // neighbours are known now
  const capture = await Capture.start({
    namespace: lab.namespace('host1'),
    device: 'eth0',
    direction: 'out',
    filter: 'udp dst port 8472',
  })
  const sender = NamespaceSocket[family === 4 ? 'ipv4' : 'ipv6'](lab.namespace('pod1.1'), destination)
  for (const [index, build] of Object.values(packets).entries()) {
    const number = FIRST_NUMBER + index
    await sender.write(build({ source, destination, ttl: 64, identification: number, flowLabel: number }))
  }
  sender.close()
  await expect.poll(() => capture.frames().length).toBeGreaterThanOrEqual(Object.keys(packets).length)
  // Flows leave from ports of their own, and in no order among each other.
  return (await capture.stop()).sort((a, b) => innerNumber(a) - innerNumber(b))
}

/** The number that the packet was given: IPv4's identification, IPv6's flow label. */
function innerNumber(frame: Uint8Array): number {
  const notes = notesOf(frame)
  const label = notes.find(({ layer, name }) => layer === 'IPv6' && name === 'flowLabel')
  if (label !== undefined) return viewOf(frame).getUint32(label.at - 1) & 0xfffff
  const identification = notes.findLast(({ layer, name }) => layer === 'IPv4' && name === 'identification')
  if (identification === undefined) throw new Error('no inner header in the frame')
  return viewOf(frame).getUint16(identification.at)
}

/** Ends our daemon on host1 and starts one there that leaves packets to the kernel; lease and MAC stay. */
async function handOverToKernel(lab: Lab): Promise<void> {
  const host = lab.host('host1')
  if (host.daemon !== null) {
    signal(host.daemon, 'SIGTERM')
    expect(await waitGone([host.daemon], 20_000)).toBe(true)
  }
  ip('-n', host.namespace, 'link', 'delete', 'flannel.1')
  const daemon = startDaemon({ ...LAB_DEFAULTS, ...LAB }, { ...host, dataplane: 'kernel' })
  await waitReady(lab.name, 'host1', daemon, 1)
}

describe('the frame on the wire', () => {
  const lab = labUnderTest(LAB)
  let ours: Uint8Array[] = []
  let kernels: Uint8Array[] = []

  beforeAll(async () => {
    ip('netns', 'exec', lab().namespace('host1'), 'ethtool', '-K', 'eth0', 'gro', 'off')
  })

  test('can be had from both dataplanes', async () => {
    const all = async () => [await framesOf(lab(), FAMILIES[0]!), await framesOf(lab(), FAMILIES[1]!)].flat()
    ours = await all()
    await handOverToKernel(lab())
    kernels = await all()
    expect(ours).toHaveLength(NAMES.length)
    expect(kernels).toHaveLength(ours.length)
  })

  test.each(NAMES.map((name, index) => [name, index] as const))('is the kernel’s, byte for byte: %s', (_, index) => {
    expect(withoutFreeFields(ours[index]!)).toBe(withoutFreeFields(kernels[index]!))
  })

  test.each(NAMES.map((name, index) => [name, index] as const))(
    'has right checksums outside, whatever is inside: %s',
    (_, index) => {
      for (const frame of [ours[index]!, kernels[index]!]) {
        const outer = notesOf(frame).slice(
          0,
          notesOf(frame).findIndex((note) => note.layer === 'VXLAN'),
        )
        expect(outer.filter((note) => note.problem !== undefined)).toEqual([])
        expect(outer.find((note) => note.layer === 'UDP' && note.name === 'checksum')?.value).not.toMatch(/^0(x0+)?$/)
      }
    },
  )
})

describeWireChecksums({ frames: 5000, family: 4 })
describeWireChecksums({ frames: 5000, family: 6 })
