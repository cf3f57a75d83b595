// Tunnels between IPv6 addresses of hosts, beside those over IPv4 or alone: leases, devices and rows in flannel's form,
// pods of all kinds of hosts reaching each other by both families, and the bytes between the hosts.
import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, onTestFinished, test } from 'vitest'
import * as ethernet from '../../dataplane/wire/ethernet.ts'
import { fold, sumPseudoHeader6, sumWords } from '../../dataplane/wire/internet-checksum.ts'
import * as ipv6 from '../../dataplane/wire/ipv6.ts'
import * as udp from '../../dataplane/wire/udp.ts'
import * as vxlan from '../../dataplane/wire/vxlan.ts'
import type { LinkInfo } from '../../src/host/ip.ts'
import { hostFiles, labFiles } from '../../src/lab/lab-state.ts'
import { askInHost, verdictsOf } from '../support/ask-in-host.ts'
import { Capture } from '../support/capture.ts'
import { countersOf, eventually, expectCleanBooks, labUnderTest, leaseText, logOf } from '../support/lab-under-test.ts'
import { linesOf } from '../support/output-lines.ts'
import { ip } from '../support/own-namespace.ts'
import { ip6, viewOf } from '../support/packets.ts'
import { startTransfer } from '../support/transfer.ts'

const PORT = 8472
const ETHERTYPE_IPV6 = 0x86dd
const UNDERLAY = (host: number) => `fd00:192:168:56::1${host}`
const SUBNET = (host: number) => `fd00:10:244:${host}::`

describe('hosts with a tunnel of each family', () => {
  const mixed = { hosts: 4, kernel: ['host3'], auto: ['host4'] }
  const lab = labUnderTest({ name: 'dual', pods: 1, ...mixed, family: 'dual', underlay: 'wire' })
  const node = (host: string) => lab().host(host).status!.node!
  const shown = async (host: string, ...words: string[]) => linesOf((await lab().exec(host, words)).stdout)

  test('hold leases with both halves, both addresses and a MAC for each device, in flannel’s form', () => {
    const { mac, ipv6Device } = node('host1')
    expect(ipv6Device?.mac).not.toBe(mac)
    expect(leaseText('dual', `10.244.1.0-24&${SUBNET(1)}-64`)).toBe(
      `{"PublicIP":"192.168.56.11","PublicIPv6":"${UNDERLAY(1)}","BackendType":"vxlan",` +
        `"BackendData":{"VNI":1,"VtepMAC":"${mac}"},"BackendV6Data":{"VNI":1,"VtepMAC":"${ipv6Device?.mac}"}}`,
    )
  })

  test('tell CNI plugins of both subnets, and of the MTU over IPv4', () => {
    expect(readFileSync(hostFiles('dual', 'host1').subnetFile, 'utf8')).toBe(
      'FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\n' +
        `FLANNEL_IPV6_NETWORK=fd00:10:244::/48\nFLANNEL_IPV6_SUBNET=${SUBNET(1)}1/64\n` +
        'FLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n',
    )
  })

  test('have two devices, each with the address, the route and the MTU of its family', async () => {
    for (const [family, device, network] of [
      ['-4', 'flannel.1', '10.244.0.0/16 proto 142 scope link src 10.244.1.0'],
      ['-6', 'flannel-v6.1', `fd00:10:244::/48 proto 142 src ${SUBNET(1)} metric 1024 pref medium`],
    ] as const) {
      expect(await shown('host1', 'ip', family, 'route', 'show', 'dev', device, 'proto', '142')).toEqual([
        network.replace(' proto 142', ''),
      ])
    }
    const brief = async (device: string) => (await shown('host1', 'ip', '-br', 'address', 'show', device))[0]
    expect(await brief('flannel.1')).toMatch(/ 10\.244\.1\.0\/32$/)
    expect(await brief('flannel-v6.1')).toMatch(/ fd00:10:244:1::\/128$/)
    for (const host of ['host1', 'host3']) {
      const mtu = async (device: string) => (await shown(host, 'cat', `/sys/class/net/${device}/mtu`))[0]
      expect([await mtu('flannel.1'), await mtu('flannel-v6.1')]).toEqual(['1450', '1430'])
    }
  })

  test('of the kernel have the rows of each family on its device, and no others', async () => {
    const rows = async (family: '-4' | '-6', device: string) => ({
      routes: await shown('host3', 'ip', family, 'route', 'show', 'dev', device, 'proto', '142'),
      neighbours: (await shown('host3', 'ip', family, 'neigh', 'show', 'dev', device, 'nud', 'permanent')).sort(),
      fdb: (await shown('host3', 'bridge', 'fdb', 'show', 'dev', device)).sort(),
    })
    const peers = [1, 2, 4]
    const mac = (host: number) => node(`host${host}`).mac
    const ipv6Mac = (host: number) => node(`host${host}`).ipv6Device?.mac
    expect(await rows('-4', 'flannel.1')).toEqual({
      routes: peers.map((host) => `10.244.${host}.0/24 via 10.244.${host}.0 onlink`),
      neighbours: peers.map((host) => `10.244.${host}.0 lladdr ${mac(host)} PERMANENT proto 142`),
      fdb: peers.map((host) => `${mac(host)} dst 192.168.56.1${host} self permanent`).sort(),
    })
    expect(await rows('-6', 'flannel-v6.1')).toEqual({
      routes: peers.map((host) => `${SUBNET(host)}/64 via ${SUBNET(host)} metric 1024 onlink pref medium`),
      neighbours: peers.map((host) => `${SUBNET(host)} lladdr ${ipv6Mac(host)} PERMANENT proto 142`),
      fdb: peers.map((host) => `${ipv6Mac(host)} dst ${UNDERLAY(host)} self permanent`).sort(),
    })
    const link = (await shown('host3', 'ip', '-d', 'link', 'show', 'flannel-v6.1')).join(' ')
    expect(link).toMatch(/ noudp6zerocsumtx noudp6zerocsumrx /)
  })

  test('forward by our engine, by the kernel, and by what was chosen, the same for both families', () => {
    expect(lab().hosts.map(({ name }) => lab().host(name).status?.dataplane)).toEqual([
      ...['userspace', 'userspace', 'kernel', 'kernel'],
    ])
    expect(node('host4').ipv6Device?.device).toBe('flannel-v6.1')
  })

  test.each([4, 6] as const)('let pods of every pair of hosts reach each other by IPv%i', async (family) => {
    const results = await lab().pingAll({ count: 3, family })
    expect(results).toHaveLength(12)
    expect(results.filter(({ received }) => received !== 3)).toEqual([])
  })

  // To the kernel and back: forwarding-matrix.test.ts.
  test('bring the very bytes over IPv6 from one of ours to the other', async () => {
    const transfer = await startTransfer(lab().endpoint('pod1.1'), lab().endpoint('pod2.1', 6), { mebibytes: 1 })
    const { sent, received } = await transfer.done
    expect(received).toBe(sent)
    expect(received).toMatch(/^1048576 /)
  })

  test('put VXLAN into UDP over IPv6, with a right checksum, for the MAC of that device', async () => {
    const namespace = lab().namespace('host1')
    const filter = `ip6 and udp dst port ${PORT}`
    const capture = await Capture.start({ namespace, device: 'eth0', direction: 'out', filter, count: 3 })
    await lab().ping('pod1.1', 'pod2.1', { family: 6, count: 3 })
    const frames = await capture.stop(3)
    for (const frame of frames) {
      const view = viewOf(frame)
      const outer = ethernet.HEADER_LEN
      const [source, destination] = [ipv6.getSource(view, outer), ipv6.getDestination(view, outer)]
      expect([source, destination]).toEqual([ip6(UNDERLAY(1)), ip6(UNDERLAY(2))])
      const at = outer + ipv6.HEADER_LEN
      const length = udp.getLength(view, at)
      expect(udp.getChecksum(view, at)).not.toBe(0)
      const pseudo = sumPseudoHeader6(source, destination, ipv6.getNextHeader(view, outer), length)
      expect(fold(sumWords(frame, at, at + length, pseudo))).toBe(0xffff)
      const tunnel = at + udp.HEADER_LEN
      expect([vxlan.getWord0(view, tunnel) >>> 0, vxlan.getWord1(view, tunnel) >>> 0]).toEqual([0x0800_0000, 0x100])
      const inner = tunnel + vxlan.HEADER_LEN
      const macs = [ethernet.getDestination(view, inner), ethernet.getSource(view, inner)]
      const text = macs.map((mac) => (mac.toString(16).padStart(12, '0').match(/../g) ?? []).join(':'))
      expect(text).toEqual([node('host2').ipv6Device?.mac, node('host1').ipv6Device?.mac])
      expect(ethernet.getEtherType(view, inner)).toBe(ETHERTYPE_IPV6)
    }
  })

  test('tell pods at once what is too large for IPv6', async () => {
    const target = lab().endpoint('pod3.1', 6).address
    const words = ['ping', '-n', '-c', '1', '-W', '10', '-M', 'do', '-s', '1402', target]
    const { stdout } = await lab().exec('pod2.1', words)
    expect(stdout).toContain('Packet too big: mtu=1430')
    await lab().ping('pod2.1', 'pod3.1', { family: 6, sizeBytes: 4000, waitMs: 2000 }) // the other end learns it by its first answer
    const large = async () => (await lab().ping('pod2.1', 'pod3.1', { family: 6, count: 2, sizeBytes: 4000 })).received
    await expect.poll(large).toBe(2)
  })

  test('reach each other on every rung, by both families', async () => {
    const ladder = (await askInHost(lab(), 'host1', 'ping', 'host3', '--count', '1')).json
    const rungs = ladder.rungs as { name: string; verdict: string }[]
    expect(rungs.map(({ name, verdict }) => `${name} ${verdict}`)).toEqual([
      ...['store good', 'underlay good', 'vtep good', 'underlay-ipv6 good', 'vtep-ipv6 good'],
      ...['sizes good', 'sizes-ipv6 good', 'pod-side good'],
    ])
    const { json } = await askInHost(lab(), 'host1', 'doctor', '--peers')
    const bad = (json.findings as { severity: string }[]).filter(({ severity }) => severity === 'error')
    expect(bad).toEqual([])
    const row = {
      refused: false,
      vtepMs: expect.any(Number),
      ipv6Ms: expect.any(Number),
      whole: true,
      fragmented: true,
      ipv6Tunnel: { vtepMs: expect.any(Number), whole: true, fragmented: true },
    }
    expect(json.peers).toMatchObject([row, row, row])
  })

  test('are warned of rules and routes of IPv6 that take packets away, as of IPv4', async () => {
    const shell = (line: string) => lab().exec('host1', ['bash', '-c', line])
    onTestFinished(async () => {
      await shell('ip -6 route del fd00:10:244:3::/64 dev eth0; ip6tables -D INPUT 1; ip6tables -P FORWARD ACCEPT')
    })
    // The policy alone is no fault: our own rules accept the network.
    await shell(`ip -6 route add fd00:10:244:3::/64 dev eth0; ip6tables -I INPUT -p udp --dport ${PORT} -j DROP
      ip6tables -P FORWARD DROP`)
    // The daemon sees the route as well, and doctor says what it makes of it.
    const ways = () =>
      lab()
        .host('host1')
        .status!.peers.flatMap((peer) => peer.ways ?? [])
    const lost = () => ways().flatMap(({ subnet, way }) => (way === 'none' ? [subnet] : []))
    await eventually(() => expect(lost()).toEqual(['fd00:10:244:3::/64']))
    const { json } = await askInHost(lab(), 'host1', 'doctor')
    const bad = (json.findings as { severity: string; message: string }[]).filter(
      ({ severity }) => severity === 'error',
    )
    expect(bad.map(({ message }) => message).sort()).toEqual([
      expect.stringMatching(/^fd00:10:244:3::\/64 \(192\.168\.56\.13\) is pending: a route that is not ours/),
      expect.stringMatching(
        /^fd00:10:244:3::\/64 of the pod network leads to eth0, .* 192\.168\.56\.13 are not reached/,
      ),
      `ip6tables INPUT has a rule that drops the tunnel (UDP port ${PORT})`,
    ])
  })

  test('are looked at as one: peers by both addresses, books of both devices', async () => {
    await lab().pingAll() // lately, so that peers are active
    await eventually(() => {
      const { status } = lab().host('host1')
      expect(status?.peers.map(({ publicIp, publicIpv6, state }) => [publicIp, publicIpv6, state])).toEqual([
        ['192.168.56.12', UNDERLAY(2), 'active'],
        ['192.168.56.13', UNDERLAY(3), 'active'],
        ['192.168.56.14', UNDERLAY(4), 'active'],
      ])
      expectCleanBooks(countersOf(lab(), 'host1'))
      // But for the route that was planted for doctor to find.
      const complaints = logOf(lab(), 'host1').filter(({ level }) => level !== 'info')
      expect(complaints.filter(({ event }) => event !== 'foreign-route')).toEqual([])
    })
  })

  test('have the IPv6 device back that somebody took away, with all that was on it; IPv4 goes on', async () => {
    const shapes = () =>
      ['host1', 'host3'].map((host) => {
        const links: LinkInfo[] = JSON.parse(ip('-n', lab().namespace(host), '-json', 'address', 'show'))
        const { mtu, address, flags, addr_info } = links.find(({ ifname }) => ifname === 'flannel-v6.1') ?? {}
        return [mtu, address, flags?.includes('UP'), addr_info?.map(({ local }) => local)]
      })
    const before = shapes()
    const steady = lab().ping('pod1.1', 'pod3.1', { count: 40 })
    for (const host of ['host1', 'host3']) ip('-n', lab().namespace(host), 'link', 'delete', 'flannel-v6.1')
    expect(await steady).toMatchObject({ received: 40 })
    await expect.poll(shapes, { timeout: 15_000, interval: 50 }).toEqual(before)
    const answered = async () => (await lab().ping('pod1.1', 'pod3.1', { family: 6, waitMs: 1000 })).received
    await expect.poll(answered, { timeout: 15_000, interval: 200 }).toBe(1)
    const toAnother = async () => (await lab().ping('pod3.1', 'pod2.1', { family: 6 })).received
    await expect.poll(toAnother, { timeout: 15_000, interval: 200 }).toBe(1)
  })

  test('lose nothing of IPv4 when IPv6 between the hosts breaks, and have it back', async () => {
    await lab().exec('host2', ['ip', '-6', 'address', 'del', `${UNDERLAY(2)}/64`, 'dev', 'eth0'])
    expect(await lab().ping('pod1.1', 'pod2.1', { count: 2 })).toMatchObject({ received: 2 })
    expect(await lab().ping('pod1.1', 'pod2.1', { family: 6, count: 1, waitMs: 2000 })).toMatchObject({ received: 0 })
    const { json } = await askInHost(lab(), 'host1', 'ping', 'host2', '--count', '1')
    const failed = (json.rungs as { name: string; verdict: string }[]).filter(({ verdict }) => verdict === 'bad')
    expect(failed).toMatchObject([
      { name: 'underlay-ipv6', next: expect.stringContaining(UNDERLAY(2)) },
      { name: 'vtep-ipv6', next: expect.stringContaining(`ping ${UNDERLAY(2)}`) },
    ])
    await lab().exec('host2', ['ip', '-6', 'address', 'add', `${UNDERLAY(2)}/64`, 'dev', 'eth0', 'nodad'])
    await eventually(() => expect(lab().host('host2').status?.state).toBe('ready'))
    const answered = async () => (await lab().ping('pod1.1', 'pod2.1', { family: 6, count: 2 })).received
    await expect.poll(answered, { timeout: 15_000, interval: 200 }).toBe(2)
  })
})

describe('hosts without any IPv4', () => {
  const daemonArguments = ['--ip-masq', '--ip-blackhole-route']
  const lab = labUnderTest({ name: 'ipv6only', hosts: 3, pods: 1, kernel: ['host3'], family: 'ipv6', daemonArguments })

  test('hold leases under flannel’s key without an IPv4 half', () => {
    expect(readdirSync(`${labFiles('ipv6only').store}/subnets`).sort()).toEqual(
      [1, 2, 3].map((host) => `0.0.0.0-0&${SUBNET(host)}-64`),
    )
    const mac = lab().host('host1').status?.node?.mac
    expect(leaseText('ipv6only', `0.0.0.0-0&${SUBNET(1)}-64`)).toBe(
      `{"PublicIP":"0.0.0.0","PublicIPv6":"${UNDERLAY(1)}","BackendType":"vxlan","BackendV6Data":{"VNI":1,"VtepMAC":"${mac}"}}`,
    )
  })

  test('tell CNI plugins of IPv6 alone, with the MTU of a tunnel over it', () => {
    expect(readFileSync(hostFiles('ipv6only', 'host1').subnetFile, 'utf8')).toBe(
      `FLANNEL_IPV6_NETWORK=fd00:10:244::/48\nFLANNEL_IPV6_SUBNET=${SUBNET(1)}1/64\n` +
        'FLANNEL_MTU=1430\nFLANNEL_IPMASQ=true\n',
    )
  })

  test('open no socket of IPv4 for the tunnel, and have no device for it', async () => {
    for (const host of ['host1', 'host3']) {
      expect((await lab().exec(host, ['ss', '-Hlnu4', 'sport', '=', `:${PORT}`])).stdout).toBe('')
      expect((await lab().exec(host, ['ss', '-Hlnu6', 'sport', '=', `:${PORT}`])).stdout).not.toBe('')
      expect((await lab().exec(host, ['ip', 'link', 'show', 'flannel.1'])).exitCode).not.toBe(0)
    }
  })

  test('have rules and the blackhole route of IPv6, and none of IPv4', async () => {
    const shown = async (...words: string[]) => linesOf((await lab().exec('host1', words)).stdout)
    const rules = await shown('ip6tables', '-t', 'nat', '-S', 'FLANNEL-POSTRTG')
    expect(rules).toHaveLength(7)
    expect(rules[2]).toMatch(/-s fd00:10:244:1::\/64 -d fd00:10:244::\/48 .*-j RETURN/)
    expect((await shown('iptables-save')).filter((line) => line.includes('FLANNEL'))).toEqual([])
    const routes = await shown('ip', '-6', 'route', 'show', 'type', 'blackhole', 'proto', '142')
    expect(routes).toEqual([expect.stringMatching(/^blackhole fd00:10:244:1::\/64 /)])
  })

  test('let pods reach each other, and bring the very bytes', async () => {
    const results = await lab().pingAll({ count: 3 })
    expect(results).toHaveLength(6)
    expect(results.filter(({ received }) => received !== 3)).toEqual([])
    const transfer = await startTransfer(lab().endpoint('pod2.1'), lab().endpoint('pod1.1'), { mebibytes: 1 })
    const { sent, received } = await transfer.done
    expect(received).toBe(sent)
  })

  test('reach each other on every rung, from ours to the kernel and back', async () => {
    for (const [from, to] of [
      ['host3', 'host1'],
      ['host1', SUBNET(3)],
    ] as const) {
      const { exitCode, json } = await askInHost(lab(), from, 'ping', to, '--count', '1')
      expect([verdictsOf(json.rungs), exitCode]).toEqual(['good good good good good', 0])
    }
    const { json } = await askInHost(lab(), 'host1', 'doctor', '--peers')
    const bad = (json.findings as { severity: string }[]).filter(({ severity }) => severity === 'error')
    expect(bad).toEqual([])
    expect(json.peers).toMatchObject([
      { whole: true, fragmented: true },
      { whole: true, fragmented: true },
    ])
  })

  test('keep lease, MAC and file over the death of the daemon', async () => {
    const before = leaseText('ipv6only', `0.0.0.0-0&${SUBNET(1)}-64`)
    await lab().fault({ kind: 'crash', host: 'host1' })
    await lab().heal()
    await eventually(() => expect(lab().host('host1').status?.state).toBe('ready'), 20_000)
    expect(leaseText('ipv6only', `0.0.0.0-0&${SUBNET(1)}-64`)).toBe(before)
    expect(await lab().ping('pod1.1', 'pod2.1', { count: 2 })).toMatchObject({ received: 2 })
  })

  test('log nothing above what a start says', () => {
    const loud = logOf(lab(), 'host2').filter(({ level }) => level !== 'info')
    expect(loud).toEqual([])
  })
})
