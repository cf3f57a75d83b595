// What the kernel is told of DF, and what it says of the way to an address: sockets of both families on the loopback.
import { afterEach, describe, expect, test } from 'vitest'
import { WideAddresses } from '../../../../dataplane/engine/outer-addresses.ts'
import { encodeForwardingTable, ForwardingTable } from '../../../../dataplane/forwarding/forwarding-table.ts'
import * as libc from '../../../../dataplane/io/linux/libc.ts'
import { PathProbe } from '../../../../dataplane/io/linux/path-probe.ts'
import { openPathSockets, openSenders, openUdpSockets } from '../../../../dataplane/io/linux/udp-open.ts'
import { ip, ip6 } from '../../../support/packets.ts'

const LOOPBACK = { 4: ip('127.0.0.1'), 6: ip6('::1') }
/** IP_MTU_DISCOVER and IPV6_MTU_DISCOVER: level and name. */
const DISCOVER = { 4: [0, 10], 6: [41, 23] } as const
const [DONT, DO, OMIT] = [0, 2, 5]
/** The device's is one byte more; no IPv4 packet is larger than this (IP_MAX_MTU in the kernel's ip.h). */
const LARGEST_IPV4 = 65535
const LOOPBACK_MTU = 65536
const VNI = 1

const opened: number[] = []
afterEach(() => {
  for (const fd of opened.splice(0)) libc.close(fd)
})

function pathsOn(family: 4 | 6) {
  const paths = openPathSockets(LOOPBACK[family])
  if ('step' in paths) throw new Error(`no socket on the loopback: errno ${paths.errno}`)
  opened.push(paths.fragmentingFd, paths.probeFd)
  return paths
}

describe.each([4, 6] as const)('over IPv%i', (family) => {
  const [level, name] = DISCOVER[family]
  const discoverOf = (fd: number) => libc.getsockopt(fd, level, name)
  const fragmenting = family === 4 ? OMIT : DONT

  test.each([
    ['clear', fragmenting],
    ['set', DO],
  ] as const)('sockets that send and the one that receives have DF as asked: %s', (outerDf, expected) => {
    const senders = openSenders(LOOPBACK[family], 2, outerDf)
    const receiving = openUdpSockets(LOOPBACK[family], 0, '6.18.0', 1, outerDf)
    if ('step' in receiving) throw new Error(`no socket on the loopback: errno ${receiving.errno}`)
    opened.push(...senders, receiving[0]!.fd)
    expect(opened.map(discoverOf)).toEqual([expected, expected, expected])
  })

  test('the socket for what must be fragmented has it clear', () => {
    expect(discoverOf(pathsOn(family).fragmentingFd)).toBe(fragmenting)
  })
})

test('the way to an IPv4 address takes the MTU of its device, less IP and UDP, asked for as often as one likes', () => {
  const probe = new PathProbe(pathsOn(4).probeFd, null)
  for (const address of ['127.0.0.1', '127.0.0.9', '127.255.0.1']) {
    expect(probe.payloadTo(ip(address) | 0, 8472)).toBe(LARGEST_IPV4 - 28)
  }
})

test('so does the way to an IPv6 address, known by its number', () => {
  const wide = new WideAddresses()
  const vtep = { underlayAddress: LOOPBACK[6], port: 8472, mac: 1, vni: VNI }
  const entries = [{ prefix: { address: ip6('fd01::'), length: 64 }, vtep }]
  const table = new ForwardingTable(encodeForwardingTable(entries, 1))
  wide.replaceTable(table)
  expect(new PathProbe(pathsOn(6).probeFd, wide).payloadTo(table.peer(0), 8472)).toBe(LOOPBACK_MTU - 48)
})
