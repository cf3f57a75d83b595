// `doctor --bundle FILE.tar.gz`: everything that somebody else needs to look into a trouble, without secrets. Works
// with a dead daemon: it packs what is there and says what is not.
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join, resolve } from 'node:path'
import { wordsOf } from '../daemon/daemon-words.ts'
import { FlanneletteError } from '../errors.ts'
import { attempt, run } from '../host/command.ts'
import { maskSecrets, maskWords } from '../secrets.ts'
import type { Facts } from './facts.ts'
import { DEFAULT_CNI_DIRECTORY } from './gather.ts'

export interface BundleOptions {
  /** Path of the archive; replaced when it exists. */
  readonly path: string
  readonly facts: Facts
  /** The report of doctor itself, as text and as JSON. */
  readonly report: { readonly text: string; readonly json: string }
  /** A log file of the daemon, besides what journalctl has. */
  readonly logFile?: string | undefined
  readonly cniDirectory?: string
}

export interface BundledFile {
  readonly name: string
  readonly bytes: number
}

/** Where packages and manifests keep flags and the network config. */
const SETTING_FILES = [
  '/etc/default/flannelette',
  '/etc/default/flanneld',
  '/etc/sysconfig/flanneld',
  '/etc/kube-flannel/net-conf.json',
]

/** Longest part of a log that is packed, from its end, in bytes. */
const LOG_BYTES = 4 * 1024 * 1024
const PROGRAM_MS = 10_000

/**
 * Packs it. Resolves with what is inside. @throws FlanneletteError `host-command` when the archive cannot be written
 */
export async function writeBundle(options: BundleOptions): Promise<BundledFile[]> {
  const directory = mkdtempSync(join(tmpdir(), 'flannelette-bundle-'))
  try {
    const root = join(directory, basename(options.path).replace(/\.(tar\.gz|tgz)$/, '') || 'bundle')
    mkdirSync(root)
    const files: BundledFile[] = []
    for (const [name, content] of await contents(options)) {
      const masked = maskSecrets(content)
      writeFileSync(join(root, name), masked, { mode: 0o600 })
      files.push({ name, bytes: Buffer.byteLength(masked) })
    }
    await run(['tar', '-C', directory, '-czf', resolve(options.path), basename(root)], { timeoutMs: 60_000 })
    return files
  } catch (cause) {
    if (cause instanceof FlanneletteError) throw cause
    const message = `the bundle ${options.path} cannot be written: ${(cause as Error).message}`
    throw new FlanneletteError('host-command', message, { remedy: 'name a file in a directory that exists', cause })
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

/** Program output: file name → command. What a program has to complain of is packed with the rest. */
function commands({ view }: Facts): [string, string[]][] {
  const underlay = view.status?.node?.underlayInterface
  const device = view.status?.node?.device ?? 'flannel.1'
  const ethtool = [underlay, device].flatMap((name): [string, string[]][] =>
    name === undefined
      ? []
      : [
          [`ethtool-k-${name}.txt`, ['ethtool', '-k', name]],
          [`ethtool-i-${name}.txt`, ['ethtool', '-i', name]],
        ],
  )
  return [
    ['uname.txt', ['uname', '-a']],
    ['ip-link.txt', ['ip', '-d', '-s', 'link', 'show']],
    ['ip-address.txt', ['ip', '-d', 'address', 'show']],
    ['ip-route.txt', ['ip', '-d', 'route', 'show', 'table', 'all']],
    ['ip-rule.txt', ['ip', 'rule', 'show']],
    ['ip-neigh.txt', ['ip', '-d', '-s', 'neigh', 'show']],
    ['bridge-fdb.txt', ['bridge', '-d', 'fdb', 'show']],
    ['ss-udp.txt', ['ss', '-uanpem']],
    ['nft-ruleset.txt', ['nft', 'list', 'ruleset']],
    ['iptables.txt', ['iptables-save', '-c']],
    ['tc-qdisc.txt', ['tc', '-s', 'qdisc', 'show']],
    ['nstat.txt', ['nstat', '-az']],
    [
      'sysctl-net.txt',
      ['sysctl', '-e', 'net.ipv4.ip_forward', 'net.core', 'net.ipv4.conf', 'net.ipv6.conf.all', 'net.bridge'],
    ],
    ['units.txt', ['systemctl', 'cat', '--no-pager', 'flannelette', 'flanneld']],
    ['journal.txt', ['journalctl', '--no-pager', '-n', '5000', '-u', 'flannelette', '-u', 'flanneld']],
    ...ethtool,
  ]
}

async function contents(options: BundleOptions): Promise<[string, string][]> {
  const { facts, report, logFile } = options
  const { view } = facts
  const outputs = await Promise.all(
    commands(facts).map(async ([name, argv]) => [name, await outputOf(argv)] as [string, string]),
  )
  const cni = (facts.cniConfigs ?? []).map(({ file }) => {
    return [`cni-${file}`, fileText(join(options.cniDirectory ?? DEFAULT_CNI_DIRECTORY, file))] as [string, string]
  })
  const state = ['status.json', 'lease.json', 'leases.json', 'mac'].map((name) => {
    return [`state-${name}`, fileText(join(view.stateDirectory, name))] as [string, string]
  })
  const settings = SETTING_FILES.filter((path) => existsSync(path)).map((path) => {
    return [path.slice(1).replaceAll('/', '-'), fileText(path)] as [string, string]
  })
  const engine =
    facts.engineOptions === null ? [] : [['engine-options.env', facts.engineOptions.text] as [string, string]]
  const log = logFile === undefined ? [] : [['daemon.log', fileText(logFile)] as [string, string]]
  return [
    ['doctor.txt', report.text],
    ['doctor.json', report.json],
    ...state,
    ['subnet.env', fileText(facts.subnetFilePath)],
    ['daemon-process.txt', daemonProcess(facts)],
    ['os-release.txt', fileText('/etc/os-release')],
    ...settings,
    ...engine,
    ...cni,
    ...log,
    ...outputs,
  ]
}

async function outputOf(argv: readonly string[]): Promise<string> {
  const heading = `$ ${argv.join(' ')}\n`
  try {
    const { stdout, stderr, exitCode } = await attempt(argv, { timeoutMs: PROGRAM_MS })
    return `${heading}${stdout}${stderr}${exitCode === 0 ? '' : `exit code ${exitCode}\n`}`
  } catch (error) {
    return `${heading}${(error as Error).message}\n`
  }
}

/** The end of a file, or why there is none. */
function fileText(path: string): string {
  try {
    const skipped = statSync(path).size - LOG_BYTES
    const text = readFileSync(path, 'utf8')
    return skipped > 0 ? `(${skipped} bytes before this are left out)\n${text.slice(-LOG_BYTES)}` : text
  } catch (error) {
    return `${(error as Error).message}\n`
  }
}

/** Variables that the daemon reads; the others of its environment are nobody's business. */
const OUR_VARIABLES = /^(FLANNELD_|FLANNELLETTE_|NODE_OPTIONS=|EVENT_QUEUE_DEPTH=)/

/** Command line, variables, limits and rights of the daemon. */
function daemonProcess({ view }: Facts): string {
  const pid = view.status?.pid
  if (pid === undefined || !view.alive) return 'no daemon runs\n'
  try {
    const environment = readFileSync(`/proc/${pid}/environ`, 'utf8')
      .split('\0')
      .filter((one) => OUR_VARIABLES.test(one))
    return [
      `pid ${pid}`,
      maskWords(wordsOf(pid)),
      ...environment.map((variable) => maskWords([variable])),
      fileText(`/proc/${pid}/limits`),
      fileText(`/proc/${pid}/status`),
    ].join('\n')
  } catch (error) {
    return `pid ${pid}: ${(error as Error).message}\n`
  }
}
