// What pods are told and what the host's own tables look like: sizes, unreachable addresses, routes, and silence.
import { describe, expect, test } from 'vitest'
import { counter, countersOf, eventually, labUnderTest, logOf, newDrops } from '../support/lab-under-test.ts'
import { ip } from '../support/own-namespace.ts'
import { describeSizes, letPodsSendMore } from '../support/size-sweep.ts'

describeSizes([28, 29, 1441, 1448, 1449, 1450, 1451, 1452, 1490])

describe('a host of ours', () => {
  const lab = labUnderTest({ name: 'told', pods: 1, kernel: ['host2'] })
  const pingFromPod = async (...words: string[]) => {
    const { stdout, stderr } = await lab().exec('pod1.1', ['ping', '-n', '-c', '1', '-W', '10', ...words])
    return stdout + stderr
  }

  test('is silent as long as nobody speaks: nothing sent, nothing dropped, no complaint', async () => {
    const before = countersOf(lab(), 'host1')
    await new Promise((resolve) => setTimeout(resolve, 2500)) // what a kernel says about a new link, it says by then
    const after = countersOf(lab(), 'host1')
    expect(newDrops(before, after)).toEqual({})
    expect(after['outbound.packets.read']).toBe(before['outbound.packets.read'])
    expect(newDrops({}, after)).toEqual({})
    expect(logOf(lab(), 'host1').filter(({ level }) => level !== 'info')).toEqual([])
  })

  test('counts multicast and broadcast noise, and answers and logs nothing', async () => {
    const lines = logOf(lab(), 'host1').length
    const answers = counter(lab(), 'host1', 'icmp.sent')
    for (const target of ['224.0.0.1', '239.1.2.3', '255.255.255.255']) {
      await lab().exec('host1', ['ping', '-n', '-b', '-c', '1', '-W', '0.1', '-I', 'flannel.1', target])
    }
    const noise = () => counter(lab(), 'host1', 'outbound.dropped.link-local-or-multicast')
    await eventually(() => expect(noise()).toBe(3))
    expect(counter(lab(), 'host1', 'icmp.sent')).toBe(answers)
    expect(logOf(lab(), 'host1')).toHaveLength(lines)
  })

  test('tells a pod that no lease covers an address', async () => {
    expect(await pingFromPod('10.244.99.9')).toMatch(/From 10\.244\.1\.0 .*Destination Net Unreachable/)
    await eventually(() => expect(counter(lab(), 'host1', 'outbound.dropped.no-route')).toBe(1))
  })

  test('has one /32 address and one route on the device, beside the bridge’s own', async () => {
    const routes = (await lab().exec('host1', ['ip', '-4', 'route'])).stdout.trim().split(/\s*\n/)
    expect(routes).toEqual([
      expect.stringMatching(/^10\.244\.0\.0\/16 dev flannel\.1 .*scope link src 10\.244\.1\.0$/),
      expect.stringMatching(/^10\.244\.1\.0\/24 dev cni0 /),
      expect.stringMatching(/^192\.168\.56\.0\/24 dev eth0 /),
    ])
    const address = (await lab().exec('host1', ['ip', '-4', '-br', 'address', 'show', 'flannel.1'])).stdout
    expect(address).toMatch(/^flannel\.1 +\S+ +10\.244\.1\.0\/32 *\n$/)
    expect((await lab().exec('host1', ['ip', 'route', 'show', 'table', 'local'])).stdout).not.toContain(
      '10.244.255.255',
    )
  })

  test('passes strict reverse-path filters: replies come back by the route that is there', async () => {
    await lab().exec('host1', ['sh', '-c', 'for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 1 >$f; done'])
    expect(await lab().ping('pod1.1', 'pod3.1', { count: 5 })).toMatchObject({ received: 5 })
    expect(await lab().ping('pod2.1', 'pod1.1', { count: 5 })).toMatchObject({ received: 5 })
  })

  test('teaches a pod the MTU with its own answers where the device would let more pass', async () => {
    letPodsSendMore(lab())
    ip('-n', lab().namespace('host1'), 'link', 'set', 'flannel.1', 'mtu', '1500')
    expect(await pingFromPod('-M', 'do', '-s', '1423', '10.244.3.2')).toMatch(
      /From 10\.244\.1\.0 .*Frag needed and DF set \(mtu = 1450\)/,
    )
    const learnt = (await lab().exec('pod1.1', ['ip', 'route', 'get', '10.244.3.2'])).stdout
    expect(learnt).toMatch(/\bmtu 1450\b/)
    await eventually(() => expect(counter(lab(), 'host1', 'outbound.dropped.too-big')).toBe(1))
    expect(await pingFromPod('-M', 'do', '-s', '1422', '10.244.3.2')).toContain('1 received')
  })
})
