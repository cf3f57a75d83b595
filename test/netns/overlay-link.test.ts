// The overlay device's address and route on the real kernel, beside a pod bridge inside the same network.
import { describe, expect, test } from 'vitest'
import { parseIpv4, parseIpv6, parseIpv6Prefix, parsePrefix } from '../../dataplane/index.ts'
import { run } from '../../src/host/command.ts'
import { configureOverlayLink, inspectOverlayDevice, removeOverlayLink } from '../../src/host/overlay-link.ts'
import { selectUnderlay } from '../../src/host/underlay-interface.ts'
import { ip, joinedNamespaces, ownNamespace } from '../support/own-namespace.ts'

const NETWORK = parsePrefix('10.244.0.0/16') ?? { address: 0, length: 0 }
const overlay = (address: string, mtuBytes = 1450) => ({
  name: 'flannel.1',
  overlayAddress: parseIpv4(address) ?? 0,
  mtuBytes,
  network: NETWORK,
  ipv6: null,
})

/** A namespace with a persistent TUN of the overlay's name. */
function withTun(): string {
  const namespace = ownNamespace()
  ip('-n', namespace, 'tuntap', 'add', 'mode', 'tun', 'name', 'flannel.1')
  return namespace
}
const routes = (namespace: string) => ip('-n', namespace, '-4', 'route', 'show').trim().split('\n')

describe('the overlay device', () => {
  test('has a /32 address and one route, and the bridge’s subnet stays more specific', async () => {
    const namespace = withTun()
    ip('-n', namespace, 'link', 'add', 'cni0', 'type', 'bridge')
    ip('-n', namespace, 'address', 'add', '10.244.1.1/24', 'dev', 'cni0')
    ip('-n', namespace, 'link', 'set', 'cni0', 'up')
    await configureOverlayLink(overlay('10.244.1.0'), { namespace })
    expect(routes(namespace).map((route) => route.trim())).toEqual([
      expect.stringMatching(/^10\.244\.0\.0\/16 dev flannel\.1 proto 142 scope link src 10\.244\.1\.0/),
      expect.stringMatching(/^10\.244\.1\.0\/24 dev cni0 /),
    ])
    const local = ip('-n', namespace, 'route', 'show', 'table', 'local', 'dev', 'flannel.1')
    expect(local).not.toContain('broadcast')
    expect(ip('-n', namespace, 'route', 'get', '10.244.1.7')).toContain('dev cni0')
    expect(ip('-n', namespace, 'route', 'get', '10.244.2.7')).toContain('dev flannel.1 src 10.244.1.0')
  })

  test('makes no IPv6 noise of its own', async () => {
    const namespace = withTun()
    await configureOverlayLink(overlay('10.244.1.0'), { namespace })
    expect(ip('-n', namespace, '-6', 'address', 'show', 'dev', 'flannel.1')).toBe('')
    expect(ip('netns', 'exec', namespace, 'cat', '/proc/sys/net/ipv6/conf/flannel.1/accept_ra')).toBe('0\n')
  })

  test('can be configured again and again, also with another address and MTU', async () => {
    const namespace = withTun()
    await configureOverlayLink(overlay('10.244.1.0'), { namespace })
    await configureOverlayLink(overlay('10.244.1.0'), { namespace })
    await configureOverlayLink(overlay('10.244.9.0', 1400), { namespace })
    const shown = ip('-n', namespace, '-4', 'address', 'show', 'flannel.1')
    expect(shown).toContain('inet 10.244.9.0/32')
    expect(shown).toContain('mtu 1400')
    expect(shown).not.toContain('10.244.1.0')
    expect(routes(namespace)).toEqual([expect.stringMatching(/^10\.244\.0\.0\/16 .*src 10\.244\.9\.0/)])
  })

  test('carries IPv6 too, changes its address, and gives it up again', async () => {
    const namespace = withTun()
    ip('netns', 'exec', namespace, 'sysctl', '-qw', 'net.ipv6.conf.flannel/1.disable_ipv6=1') // as in many containers
    const dual = (address: string) => ({
      ...overlay('10.244.1.0'),
      ipv6: { address: parseIpv6(address) ?? 0n, network: parseIpv6Prefix('fd00:10:244::/48')! },
    })
    const shown = () => ({
      address: ip('-n', namespace, '-6', '-br', 'address', 'show', 'flannel.1').trim().split(/\s+/).slice(2),
      routes: ip('-n', namespace, '-6', 'route', 'show', 'proto', '142').trim(),
    })
    await configureOverlayLink(dual('fd00:10:244:1::'), { namespace })
    await configureOverlayLink(dual('fd00:10:244:1::'), { namespace })
    expect(shown().address).toEqual(['fd00:10:244:1::/128'])
    await configureOverlayLink(dual('fd00:10:244:9::'), { namespace })
    expect(shown()).toEqual({
      address: ['fd00:10:244:9::/128'],
      routes: expect.stringMatching(/^fd00:10:244::\/48 dev flannel\.1 src fd00:10:244:9:: [^\n]*$/),
    })
    await configureOverlayLink(overlay('10.244.1.0'), { namespace })
    expect(shown()).toEqual({ address: [], routes: '' })
    expect(routes(namespace)).toHaveLength(1)
  })

  test('is known as ours afterwards and can be removed; a stranger is left alone', async () => {
    const namespace = withTun()
    expect(await inspectOverlayDevice('flannel.1', { namespace })).toMatchObject({ kind: 'foreign' })
    await removeOverlayLink('flannel.1', { namespace })
    await configureOverlayLink(overlay('10.244.1.0'), { namespace })
    expect(await inspectOverlayDevice('flannel.1', { namespace })).toMatchObject({ kind: 'ours' })
    await removeOverlayLink('flannel.1', { namespace })
    expect(await inspectOverlayDevice('flannel.1', { namespace })).toEqual({ kind: 'absent' })
  })
})

test('the underlay is found by name, address, pattern, and by the routes', async () => {
  const [namespace] = joinedNamespaces()
  ip('-n', namespace, 'route', 'add', 'default', 'via', '192.0.2.2')
  const wanted = { name: 'eth0', address: parseIpv4('192.0.2.1'), mtuBytes: 1500 }
  const none = { ifaces: [], ifaceRegexes: [] }
  for (const wishes of [
    { ...none, ifaces: ['eth0'] },
    { ...none, ifaces: ['192.0.2.1'] },
    { ...none, ifaceRegexes: [/^192/] },
    { ...none, ifaceCanReach: parseIpv4('203.0.113.5')! },
    none,
  ]) {
    expect(await selectUnderlay(wishes, { namespace })).toMatchObject(wanted)
  }
})

test('a missing program in a namespace is named', async () => {
  const namespace = ownNamespace()
  const saying = /the program `no-such-program-here` is missing/
  await expect(run(['no-such-program-here'], { namespace })).rejects.toThrow(saying)
})
