// IPv6 of pods over an IPv4 underlay: what hosts of both kinds set up for it, what pods are told, what is left out.
import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import * as ethernet from '../../dataplane/wire/ethernet.ts'
import { hexOf } from '../../dataplane/wire/field.ts'
import * as icmpv6 from '../../dataplane/wire/icmpv6.ts'
import { PROTOCOL_ICMPV6 } from '../../dataplane/wire/ipv6.ts'
import { HOP_BY_HOP } from '../../dataplane/wire/ipv6-extension.ts'
import { hostFiles } from '../../src/lab/lab-state.ts'
import { answered } from '../support/answered.ts'
import { Capture } from '../support/capture.ts'
import { DIRECTIONS } from '../support/interop.ts'
import { IPV6_PACKETS } from '../support/ipv6-kinds.ts'
import {
  counter,
  countersOf,
  eventually,
  expectCleanBooks,
  killDaemon,
  labUnderTest,
  leaseText,
  logOf,
  NOISE,
} from '../support/lab-under-test.ts'
import { NamespaceSocket } from '../support/namespace-socket.ts'
import { linesOf } from '../support/output-lines.ts'
import { ip } from '../support/own-namespace.ts'
import { ipv6Packet, viewOf } from '../support/packets.ts'
import { letPodsSendMore, sweep } from '../support/size-sweep.ts'
import { startTransfer } from '../support/transfer.ts'

const SUBNET = (host: number) => `fd00:10:244:${host}::`
const FIRST_LABEL = 0x1000
/** Statuses are written once a second: so many looks see two of them. */
const QUIET_LOOKS = 7
const LOOKS = { timeout: 30_000, interval: 300 }
/** What somebody took away, milliseconds. */
const BACK_WITHIN_MS = 5000
describe('hosts that carry IPv6 of their pods', () => {
  const lab = labUnderTest({ name: 'ipv6', pods: 1, kernel: ['host2'], ipv6: true })
  const shown = async (host: string, ...words: string[]) => linesOf((await lab().exec(host, words)).stdout)

  test('hold dual-stack leases in flannel’s form, with one MAC for both families', () => {
    const key = `10.244.1.0-24&${SUBNET(1)}-64`
    const mac = lab().host('host1').status?.node?.mac
    const data = `{"VNI":1,"VtepMAC":"${mac}"}`
    expect(leaseText('ipv6', key)).toBe(
      `{"PublicIP":"192.168.56.11","PublicIPv6":null,"BackendType":"vxlan","BackendData":${data},"BackendV6Data":${data}}`,
    )
  })

  test('tell CNI plugins of both subnets', () => {
    expect(readFileSync(hostFiles('ipv6', 'host1').subnetFile, 'utf8')).toBe(
      'FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\n' +
        `FLANNEL_IPV6_NETWORK=fd00:10:244::/48\nFLANNEL_IPV6_SUBNET=${SUBNET(1)}1/64\n` +
        'FLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n',
    )
  })

  test('of ours have one /128 and one route for the network', async () => {
    expect(await shown('host1', 'ip', '-6', '-br', 'address', 'show', 'flannel.1')).toEqual([
      expect.stringMatching(/^flannel\.1 +\S+ +fd00:10:244:1::\/128$/),
    ])
    expect(await shown('host1', 'ip', '-6', 'route', 'show', 'dev', 'flannel.1')).toEqual([
      expect.stringMatching(/^fd00:10:244:1:: proto kernel /),
      expect.stringMatching(/^fd00:10:244::\/48 proto 142 src fd00:10:244:1:: /),
    ])
  })

  test('of the kernel have a route and a neighbour for each peer, and one FDB entry for both families', async () => {
    const mac = (host: string) => lab().host(host).status?.node?.mac
    expect(await shown('host2', 'ip', '-6', 'route', 'show', 'dev', 'flannel.1', 'proto', '142')).toEqual([
      expect.stringMatching(/^fd00:10:244:1::\/64 via fd00:10:244:1:: metric \d+ onlink/),
      expect.stringMatching(/^fd00:10:244:3::\/64 via fd00:10:244:3:: metric \d+ onlink/),
    ])
    expect((await shown('host2', 'ip', '-6', 'neigh', 'show', 'dev', 'flannel.1', 'nud', 'permanent')).sort()).toEqual([
      `${SUBNET(1)} lladdr ${mac('host1')} PERMANENT proto 142`,
      `${SUBNET(3)} lladdr ${mac('host3')} PERMANENT proto 142`,
    ])
    expect((await shown('host2', 'bridge', 'fdb', 'show', 'dev', 'flannel.1')).sort()).toEqual(
      [`${mac('host1')} dst 192.168.56.11 self permanent`, `${mac('host3')} dst 192.168.56.13 self permanent`].sort(),
    )
  })

  test('are reached from pods by their overlay addresses', async () => {
    for (const [from, host] of [
      ['pod1.1', 3],
      ['pod1.1', 2],
      ['pod2.1', 1],
    ] as const) {
      expect(await answered(lab().namespace(from), SUBNET(host), 1)).toBe(1)
    }
  })

  test.each(DIRECTIONS)('carry fragments from %s to %s', async (from, to) => {
    for (const sizeBytes of [1403, 4000, 60_000]) {
      expect(await lab().ping(from, to, { family: 6, count: 3, sizeBytes })).toMatchObject({ received: 3 })
    }
  })

  test.each([
    ['pod1.1', 'pod3.1'],
    ['pod2.1', 'pod1.1'],
    ['pod1.1', 'pod2.1'],
  ])('deliver packets of every kind from %s to %s as they were sent', async (from, to) => {
    const [source, destination] = [lab().endpoint(from, 6).address, lab().endpoint(to, 6).address]
    await lab().ping(from, to, { family: 6 }) // neighbours are known now
    const namespace = lab().namespace(to)
    const capture = await Capture.start({ namespace, device: 'eth0', direction: 'in', filter: `ip6 src ${source}` })
    const sender = NamespaceSocket.ipv6(lab().namespace(from), destination)
    const kinds = Object.entries(IPV6_PACKETS).filter(([name]) => name !== 'a hop limit about to end')
    const sent = new Map<number, string>()
    for (const [index, [name, build]] of kinds.entries()) {
      const flowLabel = FIRST_LABEL + index
      const path = { source, destination, flowLabel }
      // Two hosts forward it.
      sent.set(flowLabel, `${name}: ${hexOf(build({ ...path, ttl: 62 }))}`)
      await sender.write(build({ ...path, ttl: 64 }))
    }
    sender.close()
    const arrived = () => {
      const packets = capture.frames().map((frame) => frame.subarray(ethernet.HEADER_LEN))
      return new Map(packets.map((packet) => [viewOf(packet).getUint32(0) & 0xfffff, hexOf(packet)]))
    }
    await expect.poll(() => [...sent.keys()].filter((label) => !arrived().has(label))).toEqual([])
    await capture.stop()
    for (const [label, text] of sent) expect(`${text.split(': ')[0]}: ${arrived().get(label)}`).toBe(text)
  })

  test('tell a pod that no lease covers an address', async () => {
    const { stdout } = await lab().exec('pod1.1', ['ping', '-n', '-c', '1', '-W', '10', 'fd00:10:244:99::9'])
    expect(stdout).toMatch(/From fd00:10:244:1:: .*Destination unreachable: No route/)
    await eventually(() => expect(counter(lab(), 'host1', 'outbound.dropped.no-route')).toBe(1))
  })

  test('count what kernels say to their neighbours, and answer and log nothing', async () => {
    // What the kernel itself has to say of new addresses is over when nothing is added to it any more.
    const noises: number[] = []
    const noise = () => counter(lab(), 'host1', NOISE)
    await expect.poll(() => noises.push(noise()) > QUIET_LOOKS && noises.at(-QUIET_LOOKS) === noise(), LOOKS).toBe(true)
    const before = noise()
    const answers = counter(lab(), 'host1', 'icmp.sent')
    const logged = logOf(lab(), 'host1').length
    const [link] = JSON.parse((await lab().exec('host1', ['ip', '-json', 'link', 'show', 'flannel.1'])).stdout)
    const device = NamespaceSocket.device(lab().namespace('host1'), link.ifindex)
    for (const packet of NEIGHBOUR_TALK) await device.write(packet)
    device.close()
    await eventually(() => expect(noise() - before).toBe(NEIGHBOUR_TALK.length))
    expect(counter(lab(), 'host1', 'icmp.sent')).toBe(answers)
    expect(logOf(lab(), 'host1')).toHaveLength(logged)
  })

  test.each([
    ['address', ['-6', 'address', 'delete', `${SUBNET(1)}/128`, 'dev', 'flannel.1']],
    ['route', ['-6', 'route', 'delete', 'fd00:10:244::/48']],
  ])('put back an IPv6 %s that somebody took away', async (_, words) => {
    ip('-n', lab().namespace('host1'), ...words)
    await expect
      .poll(async () => (await lab().ping('pod1.1', 'pod3.1', { family: 6, waitMs: 1000 })).received, {
        timeout: 3 * BACK_WITHIN_MS,
      })
      .toBe(1)
    await expect
      .poll(() => ip('-n', lab().namespace('host1'), '-6', 'route', 'show', 'fd00:10:244::/48'), {
        timeout: 3 * BACK_WITHIN_MS,
      })
      .toContain(`src ${SUBNET(1)}`)
    expect(ip('-n', lab().namespace('host1'), '-6', 'address', 'show', 'flannel.1')).toContain(`${SUBNET(1)}/128`)
    await eventually(() => expect(lab().host('host1').status?.state).toBe('ready'))
  })

  test.each(['host1', 'host2'])(
    'keep their IPv6 subnet over a restart of %s, and a transfer lives on',
    async (host) => {
      const lease = () => lab().host(host).status?.lease
      const before = lease()?.ipv6Subnet
      const transfer = await startTransfer(lab().endpoint('pod1.1'), lab().endpoint('pod2.1', 6), {
        mebibytes: 8,
        seconds: 3,
      })
      await killDaemon(lab(), host)
      await lab().restart(host)
      expect(lease()?.ipv6Subnet).toBe(before)
      expect(before).toMatch(/^fd00:10:244:\d::\/64$/)
      const { sent, received } = await transfer.done
      expect(received).toBe(sent)
    },
  )

  describe('whose pods have a larger MTU than the tunnel', () => {
    const sizes = [48, 49, 1441, 1449, 1450, 1451, 1452, 1500]

    test.each([
      ['pod1.1', 'pod3.1'],
      ['pod1.1', 'pod2.1'],
      ['pod2.1', 'pod3.1'],
    ])('tell them what fits, from %s to %s', async (from, to) => {
      letPodsSendMore(lab())
      const expected = sizes.map((size) => [size, size <= 1450 ? 'delivered' : 'told'])
      expect(await sweep(lab(), from, to, sizes, 'do', 6)).toEqual(expected)
    })

    test('teach them with our own answers where the device would let more pass; TCP arrives', async () => {
      letPodsSendMore(lab())
      const target = lab().endpoint('pod3.1', 6)
      const words = ['ping', '-n', '-c', '1', '-W', '5', '-M', 'do', '-s', '1403', target.address]
      const askThroughLargerDevice = async () => {
        for (const host of ['host1', 'host3']) {
          ip('-n', lab().namespace(host), 'link', 'set', 'flannel.1', 'mtu', '1500')
        }
        ip('-n', lab().namespace('pod1.1'), '-6', 'route', 'flush', 'cache')
        return (await lab().exec('pod1.1', words)).stdout
      }
      // The daemon looks once a second whether the device has its MTU: now and then it is faster than the ping.
      const ourAnswer = /From fd00:10:244:1:: .*Packet too big: mtu=1450/
      await expect.poll(askThroughLargerDevice, { timeout: 40_000, interval: 0 }).toMatch(ourAnswer)
      const learnt = (await lab().exec('pod1.1', ['ip', '-6', 'route', 'get', target.address])).stdout
      expect(learnt).toMatch(/\bmtu 1450\b/)
      const transfer = await startTransfer(lab().endpoint('pod3.1'), lab().endpoint('pod1.1', 6), { mebibytes: 4 })
      const { sent, received } = await transfer.done
      expect(received).toBe(sent)
    })
  })

  test('end with balanced books, and nothing dropped but what was provoked', async () => {
    await eventually(() => expectCleanBooks(countersOf(lab(), 'host3'), ['outbound.dropped.too-big']))
  })
})

/** ICMPv6 with four bytes of rest and a body, unsummed: nobody reads that far. */
function icmp(
  type: number,
  source: string,
  destination: string,
  more: Parameters<typeof ipv6Packet>[2] = {},
): Uint8Array {
  const message = new Uint8Array(icmpv6.HEADER_LEN + 16)
  message[0] = type
  return ipv6Packet(PROTOCOL_ICMPV6, message, { source, destination, ttl: 255, ...more })
}

/** Router alert, RFC 2711. */
const ROUTER_ALERT = { ttl: 1, extensions: [[HOP_BY_HOP, Uint8Array.of(5, 2, 0, 0, 1, 0)]] } as const

/** Router and neighbour discovery (RFC 4861), MLD (RFC 3810): of a link, not for a tunnel. */
const NEIGHBOUR_TALK = [
  icmp(133, 'fe80::1', 'ff02::2'),
  icmp(133, '::', 'ff02::2'),
  icmp(134, 'fe80::1', 'ff02::1'),
  icmp(135, '::', 'ff02::1:ff00:1'),
  icmp(135, 'fd00:10:244:1::', 'ff02::1:ff00:2'),
  icmp(135, 'fd00:10:244:1::', 'fe80::2'),
  icmp(136, 'fe80::1', 'ff02::1'),
  icmp(130, 'fe80::1', 'ff02::1', ROUTER_ALERT),
  icmp(143, '::', 'ff02::16', ROUTER_ALERT),
]
