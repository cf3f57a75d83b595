// Two daemons on each of two hosts, whose networks differ in all that a daemon leaves on its host.
import { expect, test } from 'vitest'
import { attempt } from '../../src/host/command.ts'
import { answered } from '../support/answered.ts'
import { startDaemon, twoHosts } from '../support/daemon-under-test.ts'
import { ip } from '../support/own-namespace.ts'
import { inNetwork, overlayOf } from '../support/several-networks.ts'

const RED = { Network: '10.66.0.0/16', Backend: { Type: 'vxlan', VNI: 7 } }
const BLUE = { Network: '10.77.0.0/16', Backend: { Type: 'vxlan' } }

test.each([
  ['two kernel VTEPs that share a port', RED, BLUE, ['--dataplane', 'kernel'], ['--dataplane', 'kernel']],
  ['iptables and nftables', { ...RED, EnableNFTables: true, Backend: { ...RED.Backend, Port: 4789 } }, BLUE, [], []],
  ['plain UDP and VXLAN', { Network: RED.Network, Backend: { Type: 'udp' } }, BLUE, [], []],
  [
    'a kernel VTEP and our engine',
    { ...RED, Backend: { ...RED.Backend, Port: 4789 } },
    BLUE,
    ['--dataplane', 'kernel'],
    [],
  ],
])(
  '%s side by side: both answer, and a restart of one costs the other nothing',
  async (_, redConfig, blueConfig, redWords, blueWords) => {
    const [first, second] = twoHosts()
    const more = ['--ip-masq', '--ip-blackhole-route', '--iptables-resync', '1']
    const reds = [first, second].map((host) => inNetwork(host, 'red', redConfig))
    const blues = [first, second].map((host) => inNetwork(host, 'blue', blueConfig))
    const red = reds.map((host) => startDaemon(host, [...more, ...redWords]))
    await Promise.all(red.map((daemon) => daemon.ready(1)))
    const blue = blues.map((host) => startDaemon(host, [...more, ...blueWords]))
    await Promise.all(blue.map((daemon) => daemon.ready(1)))
    const [toRed, toBlue] = [overlayOf(red[1]!), overlayOf(blue[1]!)]
    expect([await answered(first.namespace, toRed), await answered(first.namespace, toBlue)]).toEqual([3, 3])

    const traffic = answered(first.namespace, toBlue, 100)
    expect(await red[0]!.end('SIGTERM')).toMatchObject({ exitCode: 0 })
    const again = startDaemon(reds[0]!, [...more, ...redWords])
    await again.ready(1)
    expect(await traffic).toBe(100)
    expect(await answered(first.namespace, toRed)).toBe(3)
    for (const daemon of [again, ...blue]) expect(daemon.output).not.toContain('firewall-repaired')
    for (const daemon of blue) expect(daemon.complaints).toEqual([])

    expect(await blue[0]!.end('SIGTERM')).toMatchObject({ exitCode: 0 })
    const last = startDaemon(blues[0]!, [...more, ...blueWords, '--on-exit', 'remove'])
    await last.ready(1)
    expect(await last.end('SIGTERM')).toMatchObject({ exitCode: 0 })
    expect(await answered(first.namespace, toRed)).toBe(3)
    const rules = (await attempt(['nft', 'list', 'ruleset'], { namespace: first.namespace })).stdout
    const left = [ip('-n', first.namespace, 'route', 'show'), ip('-n', first.namespace, 'link', 'show'), rules].join(
      '\n',
    )
    expect(left).toContain('10.66.')
    expect(left).not.toMatch(/10\.77\./)
  },
)
