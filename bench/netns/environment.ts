// Where a figure comes from. A result without it says nothing to anyone else.
import { readFileSync } from 'node:fs'
import { cpus, release } from 'node:os'
import { fileURLToPath } from 'node:url'
import { attempt } from '../../src/host/command.ts'
import { readFeatures } from '../../src/host/ethtool.ts'

export interface Environment {
  /** ISO 8601 */
  readonly at: string
  readonly kernel: string
  readonly system: string
  readonly cpu: string
  readonly cores: number
  readonly node: string
  /** Short hash, `+` behind it when the tree had changes; `unknown` outside a clone. */
  readonly commit: string
  readonly iperf3: string
}

/** One end of the underlay. */
export interface LinkEnd {
  readonly namespace: string
  readonly mtuBytes: number
  readonly features: Readonly<Record<string, boolean>>
}

/** Offloads that decide how many packets there are and who computes their checksums. */
const TELLING_FEATURES = [
  'tx-checksumming',
  'tcp-segmentation-offload',
  'generic-segmentation-offload',
  'generic-receive-offload',
  'tx-udp-segmentation',
  'tx-udp_tnl-segmentation',
  'tx-udp_tnl-csum-segmentation',
]
const HERE = fileURLToPath(new URL('.', import.meta.url))

export async function readEnvironment(): Promise<Environment> {
  const processors = cpus()
  return {
    at: new Date().toISOString(),
    kernel: release(),
    system: /^PRETTY_NAME="?([^"\n]*)/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1] ?? 'unknown',
    cpu: processors[0]?.model.trim() ?? 'unknown',
    cores: processors.length,
    node: process.version,
    commit: await commit(),
    iperf3: (await firstLineOf(['iperf3', '--version'])).replace(/ \(.*/, ''),
  }
}

export async function readLinkEnd(namespace: string, device: string): Promise<LinkEnd> {
  const features = await readFeatures(device, { namespace })
  const mtu = await firstLineOf(['cat', `/sys/class/net/${device}/mtu`], namespace)
  return {
    namespace,
    mtuBytes: Number(mtu),
    features: Object.fromEntries(TELLING_FEATURES.map((name) => [name, features[name] === true])),
  }
}

async function commit(): Promise<string> {
  const hash = await firstLineOf(['git', '-C', HERE, 'rev-parse', '--short', 'HEAD'])
  if (hash === '') return 'unknown'
  const changes = await firstLineOf(['git', '-C', HERE, 'status', '--porcelain', '--untracked-files=no'])
  return changes === '' ? hash : `${hash}+`
}

/** Empty when the program fails or is missing: the environment is told as far as it is known. */
async function firstLineOf(argv: readonly string[], namespace?: string): Promise<string> {
  try {
    const { exitCode, stdout } = await attempt(argv, { namespace })
    return exitCode === 0 ? (stdout.split('\n')[0] ?? '') : ''
  } catch {
    return ''
  }
}
