// A daemon that cannot start says why and what to do, in one line, and leaves the host as it found it.
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import {
  CONFIG,
  daemonWords,
  type Host,
  leasesIn,
  RunningDaemon,
  startDaemon,
  traceOf,
  twoHosts,
  writeConfig,
} from '../support/daemon-under-test.ts'
import { NamespaceSocket } from '../support/namespace-socket.ts'
import { ip } from '../support/own-namespace.ts'

interface Failure {
  /** Puts the obstacle in the way. */
  readonly prepare?: (host: Host) => void
  /** More flags. */
  readonly flags?: (host: Host) => string[]
  /** Words in front of the command. */
  readonly wrapper?: readonly string[]
  readonly exitCode: 1 | 2 | 5
  readonly says: RegExp
  readonly remedy: RegExp
}

const withConfig = (config: unknown) => (host: Host) => writeConfig(host.store, config)
const withLink =
  (...words: string[]) =>
  (host: Host) =>
    void ip('-n', host.namespace, ...words)
const foreign = { exitCode: 1, remedy: /remove it with "ip link delete dev flannel\.1"/ } as const
const busy = { exitCode: 1, says: /UDP 192\.0\.2\.1:8472 is in use/, remedy: /ss -lunp/ } as const
const config = { exitCode: 2, remedy: /./ } as const

/** A device node that nobody may open. */
const CLOSED_TUN = 'mount -t tmpfs tmpfs /dev/net && mknod -m 000 /dev/net/tun c 10 200 && exec "$@"'

const FAILURES: Readonly<Record<string, Failure>> = {
  'a flag that nobody knows': { flags: () => ['--frobnicate'], exitCode: 2, says: /--frobnicate/, remedy: /./ },
  'a flag whose value nobody knows': {
    flags: () => ['--on-exit', 'explode'],
    exitCode: 2,
    says: /--on-exit/,
    remedy: /keep, remove/,
  },
  'several workers of a driver that has one': {
    flags: () => ['--driver', 'dgram', '--workers', '2'],
    exitCode: 2,
    says: /--driver dgram has one worker, not 2/,
    remedy: /leave --workers out/,
  },
  'a kind of store that nobody knows': {
    flags: () => ['--store', 'floppy:a'],
    exitCode: 2,
    says: /floppy:a/,
    remedy: /file:DIRECTORY/,
  },
  'a network config that is no JSON': {
    ...config,
    prepare: (host) => writeFileSync(join(host.store, 'config'), '{"Network": '),
    says: /config/i,
  },
  'a network that is none': { ...config, prepare: withConfig({ Network: '10.244.0.0/40' }), says: /Network/ },
  'a network too small for its subnets': {
    ...config,
    prepare: withConfig({ Network: '10.244.0.0/24', SubnetLen: 24 }),
    says: /SubnetLen/,
  },
  'a backend that is not there': {
    ...config,
    prepare: withConfig({ Network: '10.244.0.0/16', Backend: { Type: 'carrier-pigeon' } }),
    says: /carrier-pigeon/,
  },
  'an interface that is not there': {
    flags: () => ['--iface', 'eth7'],
    exitCode: 1,
    says: /eth7/,
    remedy: /eth0 \(192\.0\.2\.1\)/,
  },
  'a port in use by a program': {
    ...busy,
    prepare: ({ namespace, address }) => {
      const owner = NamespaceSocket.udp(namespace, { from: [address, 8472] })
      onTestFinished(() => owner.close())
    },
  },
  'a port in use by a vxlan device of the kernel': {
    ...busy,
    prepare: withLink(...'link add other up type vxlan id 7 dstport 8472 local 192.0.2.1'.split(' ')),
  },
  'a vxlan device under its name': {
    ...foreign,
    prepare: withLink(...'link add flannel.1 type vxlan id 1 dstport 4790 local 192.0.2.1'.split(' ')),
    says: /vxlan device/,
  },
  'a TAP under its name': {
    ...foreign,
    prepare: withLink(...'tuntap add mode tap name flannel.1'.split(' ')),
    says: /tap device/,
  },
  'somebody’s TUN under its name': {
    ...foreign,
    prepare: withLink(...'tuntap add mode tun name flannel.1'.split(' ')),
    says: /tun device/,
  },
  'a bridge under its name, with the kernel dataplane': {
    ...foreign,
    prepare: withLink(...'link add flannel.1 type bridge'.split(' ')),
    flags: () => ['--dataplane', 'kernel'],
    says: /flannel\.1 is a bridge device that is not ours \(kind bridge, wanted vxlan\);/,
    remedy: /remove it if nothing needs it: ip link delete dev flannel\.1/,
  },
  'no /dev/net/tun': {
    wrapper: ['unshare', '--mount', 'sh', '-c', 'mount -t tmpfs tmpfs /dev/net && exec "$@"', 'sh'],
    exitCode: 1,
    says: /\/dev\/net\/tun/,
    remedy: /modprobe tun/,
  },
  'no right to make devices': {
    wrapper: ['setpriv', '--bounding-set=-net_admin', '--inh-caps=-net_admin'],
    exitCode: 5,
    says: /CAP_NET_ADMIN/,
    remedy: /run as root or give the process CAP_NET_ADMIN/,
  },
  'no right to make devices, although the device is there': {
    wrapper: ['setpriv', '--bounding-set=-net_admin', '--inh-caps=-net_admin'],
    prepare: withLink(...'tuntap add mode tun vnet_hdr name flannel.1'.split(' ')),
    exitCode: 5,
    says: /CAP_NET_ADMIN is missing/,
    remedy: /run as root or give the process CAP_NET_ADMIN/,
  },
  'no right to make devices, with the kernel dataplane': {
    wrapper: ['setpriv', '--bounding-set=-net_admin', '--inh-caps=-net_admin'],
    flags: () => ['--dataplane', 'kernel'],
    exitCode: 5,
    says: /flannel\.1 cannot be made: CAP_NET_ADMIN is missing/,
    remedy: /run as root or give the process CAP_NET_ADMIN/,
  },
  'a backend that the kernel has no tunnel for': {
    ...config,
    prepare: withConfig({ Network: '10.244.0.0/16', Backend: { Type: 'udp' } }),
    flags: () => ['--dataplane', 'kernel'],
    says: /no tunnel for the udp backend/,
  },
  'a route of somebody else for the whole pod network': {
    prepare: withLink(...'route add 10.244.0.0/16 via 192.0.2.2'.split(' ')),
    exitCode: 1,
    says: /10\.244\.0\.0\/16 has a route already that is not ours: via 192\.0\.2\.2 dev eth0/,
    remedy: /choose another Network/,
  },
  'a pod network that covers the underlay': {
    prepare: withConfig({ Network: '192.0.2.0/24', Backend: { Type: 'vxlan' } }),
    exitCode: 1,
    says: /192\.0\.2\.0\/24 covers this host's own address 192\.0\.2\.1/,
    remedy: /choose another Network/,
  },
  'a public address inside the pod network': {
    flags: () => ['--public-ip', '10.244.7.7'],
    exitCode: 1,
    says: /--public-ip 10\.244\.7\.7 lies inside the pod network 10\.244\.0\.0\/16/,
    remedy: /leave --public-ip out/,
  },
  'a network of loopback addresses': {
    ...config,
    prepare: withConfig({ Network: '127.0.0.0/8' }),
    says: /127\.0\.0\.0\/8/,
  },
  'an MTU that leaves no room': {
    ...config,
    prepare: withConfig({ Network: '10.244.0.0/16', Backend: { Type: 'vxlan', MTU: 100 } }),
    says: /MTU/,
  },
  'no right to open /dev/net/tun': {
    wrapper: [
      'setpriv',
      '--bounding-set=-dac_override',
      '--inh-caps=-dac_override',
      'unshare',
      '--mount',
      'sh',
      '-c',
      CLOSED_TUN,
      'sh',
    ],
    exitCode: 5,
    says: /\/dev\/net\/tun may not be opened/,
    remedy: /--device \/dev\/net\/tun/,
  },
  'a state directory where none can be': {
    flags: () => ['--state-dir', '/proc/flannelette'],
    exitCode: 2,
    says: /state directory/,
    remedy: /--state-dir/,
  },
  'a store that is not there': {
    prepare: ({ store }) => rmSync(store, { recursive: true }),
    exitCode: 1,
    says: /store file:.* does not exist/,
    remedy: /make the directory|--store/,
  },
  'a store that is no directory': {
    prepare: ({ store }) => {
      rmSync(store, { recursive: true })
      writeFileSync(store, '')
    },
    exitCode: 1,
    says: /store file:.* not a directory/,
    remedy: /make the directory|--store/,
  },
  'a state directory that cannot be made': {
    prepare: (host) => {
      mkdirSync(dirname(host.stateDirectory), { recursive: true })
      writeFileSync(host.stateDirectory, '')
    },
    exitCode: 2,
    says: /state directory/,
    remedy: /--state-dir/,
  },
  'a subnet.env that cannot be written': {
    prepare: (host) => mkdirSync(host.subnetFile),
    exitCode: 2,
    says: /subnet0\.env/,
    remedy: /--subnet-file/,
  },
}

test.each(Object.entries(FAILURES))('%s: one line with the remedy, and the host is as it was', async (_, failure) => {
  const { prepare, flags, wrapper = [], says, remedy } = failure
  const [host] = twoHosts()
  prepare?.(host)
  const before = traceOf(host)
  const daemon = new RunningDaemon(host, [...wrapper, ...daemonWords(host, flags?.(host) ?? [])])
  expect(await daemon.exited()).toBe(failure.exitCode)
  expect(daemon.told).toHaveLength(1)
  expect(daemon.told[0]).toMatch(says)
  expect(daemon.told[0]).toMatch(remedy)
  expect(daemon.complaints).toEqual([])
  expect(traceOf(host)).toEqual(before)
  expect(leasesIn(host.store)).toEqual([])
})

test('a start against a missing store makes no state directory', async () => {
  const [host] = twoHosts()
  rmSync(host.store, { recursive: true })
  expect(await startDaemon(host).exited()).toBe(1)
  expect(existsSync(host.stateDirectory)).toBe(false)
})

test.each(['userspace', 'kernel'])(
  'a second %s start beside a running node fails and leaves it alone',
  async (kind) => {
    const [host] = twoHosts()
    const running = startDaemon(host)
    await running.ready(0)
    const leases = leaseTexts(host)
    const other = { ...host, stateDirectory: `${host.stateDirectory}-b`, subnetFile: `${host.subnetFile}-b` }
    const second = startDaemon(other, ['--dataplane', kind])
    expect(await second.exited()).toBe(1)
    expect(second.told).toEqual([expect.stringMatching(/8472|flannel\.1/)])
    expect(leaseTexts(host)).toEqual(leases)
    expect(running.complaints).toEqual([])
    await running.ready(0)
  },
)

test.each(['userspace', 'kernel'])(
  'a second %s start in one network, with another VNI and port, is refused with the number of the first',
  async (kind) => {
    const [host] = twoHosts()
    const running = startDaemon(host)
    await running.ready(0)
    const leases = leaseTexts(host)
    writeConfig(host.store, { ...CONFIG, Backend: { Type: 'vxlan', VNI: 2, Port: 9472 } })
    const other = { ...host, stateDirectory: `${host.stateDirectory}-b`, subnetFile: `${host.subnetFile}-b` }
    const second = startDaemon(other, ['--dataplane', kind])
    expect(await second.exited()).toBe(1)
    expect(second.told).toEqual([
      expect.stringMatching(
        /10\.244\.0\.0\/16 is that of another daemon of this host \(pid \d+, .*; a host needs one daemon/,
      ),
    ])
    expect(leaseTexts(host)).toEqual(leases)
    expect(running.complaints).toEqual([])
    await running.ready(0)
  },
)

const leaseTexts = ({ store }: Host) => leasesIn(store).map((key) => readFileSync(join(store, 'subnets', key), 'utf8'))

test('starts that fail again and again take no lease', async () => {
  const [host] = twoHosts()
  const owner = NamespaceSocket.udp(host.namespace, { from: [host.address, 8472] })
  onTestFinished(() => owner.close())
  for (let start = 0; start < 3; start++) expect(await startDaemon(host).exited()).toBe(1)
  expect(leasesIn(host.store)).toEqual([])
})

test('a start that failed for want of a config goes on when there is one', async () => {
  const [host] = twoHosts()
  rmSync(join(host.store, 'config'))
  const daemon = startDaemon(host)
  await expect.poll(() => daemon.complaints.join(), { timeout: 20_000 }).toContain('config-missing')
  expect(traceOf(host)).toMatchObject({ links: expect.not.arrayContaining(['flannel.1']), subnetFile: null })
  writeConfig(host.store, CONFIG)
  await daemon.ready(0)
})
