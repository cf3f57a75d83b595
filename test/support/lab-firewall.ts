// A lab whose daemons write firewall rules, a world beyond it that knows nothing of pods, and what its hosts list.
import { beforeAll, describe, expect, test } from 'vitest'
import { batch } from '../../src/host/ip.ts'
import type { Lab } from '../../src/lab/lab.ts'
import { ip } from './own-namespace.ts'
import { arrivalOf, type Receiver, seenSource } from './seen-source.ts'

/** The world: an address on the underlay's switch, without a route to any pod. */
const WORLD = '192.168.56.1'
const WORLD_IPV6 = 'fd00:56::1'
const VXLAN_PORT = 8472
const HOSTS = [
  { kind: 'userspace', host: 'host1', other: 'host2', address: '192.168.56.11', overlay: '10.244.1.0' },
  { kind: 'kernel', host: 'host2', other: 'host1', address: '192.168.56.12', overlay: '10.244.2.0' },
] as const

/** Gives the switch an address of each family, and the hosts one of IPv6. */
async function openWorld(lab: Lab): Promise<void> {
  const where = { namespace: lab.namespace('switch') }
  await batch('ip', [`address add ${WORLD}/24 dev switch`, `address add ${WORLD_IPV6}/64 dev switch nodad`], where)
  for (const [index, { host }] of HOSTS.entries()) {
    const address = `address add fd00:56::1${index + 1}/64 dev eth0 nodad`
    await batch('ip', [address], { namespace: lab.namespace(host) })
  }
}

/** What a program prints on a host. Throws with its words when it fails. */
export async function printed(lab: Lab, host: string, ...argv: string[]): Promise<string> {
  const { exitCode, stdout, stderr } = await lab.exec(host, argv, { timeoutMs: 60_000 })
  if (exitCode !== 0) throw new Error(`${argv.join(' ')}: ${stderr}`)
  return stdout
}

/** Each rule proved by a packet that it decides about; `lab` has two hosts with a pod each. */
export function trafficTests(theLab: () => Lab): void {
  describe.each(HOSTS)('packets of a host with the $kind dataplane', ({ host, other, address, overlay }) => {
    const number = host.slice(-1)
    const pod = (of: string = host) => theLab().endpoint(`pod${of.slice(-1)}.1`)
    const here = () => theLab().namespace(host)
    const world = (): Receiver => ({ namespace: theLab().namespace('switch'), address: WORLD })

    beforeAll(() => openWorldOnce(theLab()))

    test('from a pod to the world bear the address of the host', async () => {
      expect(await seenSource(pod(), world())).toBe(address)
    })

    test('from a pod to the world by IPv6 do so too: the world knows no way back to a pod', async () => {
      const { stdout } = await theLab().exec(`pod${number}.1`, ['ping', '-n', '-c', '1', '-W', '10', WORLD_IPV6])
      expect(stdout).toContain(' 1 received')
    })

    test('from pod to pod keep their source, and the tunnel between the hosts keeps its own', async () => {
      expect(await seenSource(pod(), pod(other))).toBe(pod().address)
      const tunnel = { namespace: theLab().namespace(other), port: VXLAN_PORT }
      expect(await arrivalOf(pod(), pod(other), tunnel)).toMatchObject({ source: address })
    })

    test('from the host to a pod elsewhere come from its overlay address, also when bound to another', async () => {
      expect(await seenSource({ namespace: here() }, pod(other))).toBe(overlay)
      expect(await seenSource({ namespace: here(), address }, pod(other))).toBe(overlay)
    })

    test('from the world to a pod keep their source on the way to its own host, and lose it across another', async () => {
      const { namespace } = world()
      const lead = (to: string) => ip('-n', namespace, 'route', 'replace', `${pod(to).address}/32`, 'via', address)
      const forget = (to: string) => ip('-n', namespace, 'route', 'delete', `${pod(to).address}/32`)
      lead(host)
      expect(await seenSource({ namespace }, pod())).toBe(WORLD)
      forget(host)
      lead(other)
      expect(await seenSource({ namespace }, pod(other))).toBe(overlay)
      forget(other)
    })

    test('that somebody else marked for masquerading are left to him', async () => {
      const chain =
        'chain marking { type filter hook prerouting priority mangle; ip daddr 192.168.56.1 meta mark set 0x4000; }'
      await printed(theLab(), host, 'nft', `table ip proxy { ${chain}; }`)
      expect(await seenSource(pod(), world())).toBe(pod().address)
      await printed(theLab(), host, 'nft', 'delete table ip proxy')
    })
  })
}

const opened = new WeakSet<Lab>()

async function openWorldOnce(lab: Lab): Promise<void> {
  if (!opened.has(lab)) await openWorld(lab)
  opened.add(lab)
}
