// Checks of kernel, Node and permissions.
import { isKernelAtLeast } from '../../../dataplane/index.ts'
import type { Facts } from '../facts.ts'
import { error, note, ok, type Remark, unseen, warning } from '../finding.ts'
import type { Check } from './check.ts'

const LEAST_NODE = [20, 19, 0] as const

const nodeVersion: Check = {
  id: 'node-version',
  group: 'system',
  judge: ({ nodeVersion: version }) => {
    if (isKernelAtLeast(version, LEAST_NODE)) return [ok(`Node ${version}`)]
    return [error(`Node ${version} is older than 20.19`, 'install Node 20.19 or newer')]
  },
}

const koffi: Check = {
  id: 'koffi',
  group: 'system',
  judge: ({ koffiProblem }) => {
    if (koffiProblem === '') return [ok('the koffi library loads')]
    const remedy = 'install again, with optional dependencies: npm install --include=optional'
    return [error(`the koffi library, which talks to the kernel, does not load: ${koffiProblem}`, remedy)]
  },
}

const tunDevice: Check = {
  id: 'tun-device',
  group: 'system',
  judge: ({ tunProblem, root }) => {
    if (tunProblem === null) return [ok('/dev/net/tun opens')]
    if (tunProblem === 'EACCES' || tunProblem === 'EPERM') {
      if (!root) return [unseen('/dev/net/tun may not be opened by this user: run doctor as root')]
      return [error('/dev/net/tun may not be opened', 'in a container: --device /dev/net/tun; systemd: DeviceAllow=')]
    }
    const remedy = 'modprobe tun; in a container: --device /dev/net/tun'
    return [error(`/dev/net/tun cannot be opened (${tunProblem})`, remedy)]
  },
}

const vxlanModule: Check = {
  id: 'vxlan-module',
  group: 'system',
  judge: ({ vxlan, view, kernelRelease }) => {
    const dataplane = view.status?.dataplane ?? null
    if (vxlan === 'present' || vxlan === 'loadable') return [ok(`the kernel can make VXLAN devices (${vxlan})`)]
    if (dataplane === 'userspace') {
      return [
        note(`the kernel ${vxlan === 'absent' ? 'has no' : 'may have no'} vxlan; the userspace dataplane needs none`),
      ]
    }
    const sign = '"ip link add … type vxlan" says "operation not supported" or "unknown device type"'
    if (vxlan === 'unknown') {
      const where = `the modules of kernel ${kernelRelease} are out of sight here`
      return [
        unseen(
          `whether the kernel has vxlan: ${where}; it has none if ${sign}, and the userspace dataplane needs none`,
        ),
      ]
    }
    const message = `kernel ${kernelRelease} has no vxlan module: ${sign}`
    const remedy = 'run with --dataplane userspace (the default), which needs only /dev/net/tun'
    return [dataplane === 'kernel' ? error(message, remedy) : note(message, remedy)]
  },
}

const dataplane: Check = {
  id: 'dataplane',
  group: 'system',
  judge: ({ view, vxlan }) => {
    if (view.status === null) return []
    const { dataplane: kind, node, dataplaneWhy: why } = view.status
    if (why == null) return [ok(`${kind} dataplane`)]
    if (kind === 'userspace' && node !== null && node.vni > 0 && (vxlan === 'present' || vxlan === 'loadable')) {
      const message = `userspace dataplane (${why}); by now the kernel can make VXLAN devices`
      return [note(message, 'restart the daemon, and it takes the kernel')]
    }
    return [ok(`${kind} dataplane (${why})`)]
  },
}

const capability: Check = {
  id: 'capability',
  group: 'system',
  judge: ({ mayConfigure, view, root }) => {
    if (!mayConfigure.seen) return [unseen(`capabilities: ${mayConfigure.why}`)]
    const whose = view.alive ? 'the daemon' : 'this process'
    if (mayConfigure.value) return [ok(`${whose} has CAP_NET_ADMIN`)]
    if (!view.alive && !root) return [unseen('capabilities of a daemon: none runs, and doctor is not root')]
    const remedy =
      'give it CAP_NET_ADMIN: AmbientCapabilities=CAP_NET_ADMIN in the unit, --cap-add NET_ADMIN in a container'
    return [error(`${whose} has no CAP_NET_ADMIN: it cannot make devices and routes`, remedy)]
  },
}

/** Sockets, queues, logs and watches of one daemon with a margin. */
const LEAST_OPEN_FILES = 1024

const fileLimit: Check = {
  id: 'file-limit',
  group: 'system',
  judge: ({ openFileLimit }) => {
    if (!openFileLimit.seen) return [unseen(`limit of open files: ${openFileLimit.why}`)]
    const { value } = openFileLimit
    if (!(value < LEAST_OPEN_FILES)) return [ok(`${value} open files allowed`)]
    return [warning(`only ${value} open files are allowed`, 'LimitNOFILE=65536 in the unit, or ulimit -n 65536')]
  },
}

/** Segmented sends are damaged from the first and mended in the second of these. */
const DAMAGED_FROM = [7, 0, 0] as const
const MENDED_IN = [7, 1, 5] as const

const udpSegments: Check = {
  id: 'udp-segments',
  group: 'system',
  judge: (facts) => {
    const { kernelRelease } = facts
    const damaged = isKernelAtLeast(kernelRelease, DAMAGED_FROM) && !isKernelAtLeast(kernelRelease, MENDED_IN)
    const feature = facts.view.status?.features['udp-gso']
    if (damaged && feature?.on === true) {
      const remedy = '--udp-gso auto or off, or a kernel from 7.1.5 on'
      return [error(`kernel ${kernelRelease} damages segmented UDP sends, and they are switched on`, remedy)]
    }
    if (facts.view.status?.dataplane === 'kernel') return []
    if (damaged) return [note(`kernel ${kernelRelease} damages segmented UDP sends; they are off by default`)]
    const found = badChecksums(facts, feature?.on === true)
    return found.length === 0 ? [ok('segmented UDP sends are not known to be damaged')] : found
  },
}

/** Peers whose packets arrive damaged may run such a kernel, or sit behind a card that does the same. */
function badChecksums({ view, laterCounters }: Facts, on: boolean): Remark[] {
  const name = 'inbound.dropped.bad-checksum'
  const grown = (laterCounters?.[name] ?? 0) - (view.status?.counters[name] ?? 0)
  if (!on || grown <= 0) return []
  const remedy = 'try --udp-gso off on the nodes that send; ethtool -K DEVICE tx-udp-segmentation off'
  return [warning(`${grown} packets arrived with a bad checksum just now: a sender's offload may damage them`, remedy)]
}

/** Below, merged UDP that reaches a kernel tunnel inside a pod is lost. */
const MERGES_FROM = [6, 8, 5] as const

const udpMerging: Check = {
  id: 'udp-merging',
  group: 'system',
  judge: ({ kernelRelease, view }) => {
    if (view.status?.dataplane === 'kernel') return []
    const feature = view.status?.features['tun-gso-udp']
    if (isKernelAtLeast(kernelRelease, MERGES_FROM)) {
      return [
        ok(`merged UDP is safe on kernel ${kernelRelease}${feature?.on === false ? ` (off: ${feature.why})` : ''}`),
      ]
    }
    if (feature?.on === true) {
      const remedy = '--tun-offload off, or a kernel from 6.8.5 on'
      return [
        warning(`kernel ${kernelRelease} loses merged UDP of pods with tunnels of their own, and it is on`, remedy),
      ]
    }
    return [note(`UDP is not merged on receive: kernel ${kernelRelease} (before 6.8.5) would lose it in pods' tunnels`)]
  },
}

const features: Check = {
  id: 'features',
  group: 'system',
  judge: ({ view }) => {
    const { status } = view
    if (status === null) return []
    const remarks = Object.entries(status.features).map(([name, { on, why }]) => {
      if (on) return ok(`${name} is on: ${why}`)
      const givenUp = (status.counters[`downgrade.${name}`] ?? 0) > 0
      return note(`${name} is ${givenUp ? 'given up' : 'off'}: ${why}`)
    })
    if (status.driver !== 'dgram') return remarks
    return [...remarks, note("outer ECN is neither sent nor seen: Node's sockets have no TOS (--driver dgram)")]
  },
}

export const SYSTEM_CHECKS: readonly Check[] = [
  nodeVersion,
  koffi,
  tunDevice,
  vxlanModule,
  dataplane,
  capability,
  fileLimit,
  udpSegments,
  udpMerging,
  features,
]
