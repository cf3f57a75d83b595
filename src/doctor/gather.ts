// Collects the facts that doctor judges. Reads and asks only: nothing on the host is changed. What cannot be looked at
// (no root, a program that is not installed) is remembered with its reason and costs none of the other facts.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { apiSocketOf, optionOf, wordsOf } from '../daemon/daemon-words.ts'
import { droppedPackets } from '../daemon/drop-counts.ts'
import { FlanneletteError } from '../errors.ts'
import { attempt, run } from '../host/command.ts'
import { readFeatures } from '../host/ethtool.ts'
import { Iptables } from '../host/firewall/iptables.ts'
import { type LinkInfo, type RouteInfo, showJson } from '../host/ip.ts'
import { sharesNetwork } from '../host/network-namespace.ts'
import type { CniConfig, Facts, Looked } from './facts.ts'
import { chainsOfIptables, chainsOfNft, type FilterProgram, type FirewallChain } from './firewall-chains.ts'
import { readSystem, storageProblem } from './gather-system.ts'
import { lookAtLargePackets } from './large-packets.ts'
import { askNodeView, type NodeView } from './node-view.ts'
import { ladderPlaceOf, realTools } from './place.ts'
import { parseManaged, parsePorts } from './program-output.ts'
import { socketAnswers } from './socket-answer.ts'

export interface GatherOptions {
  readonly stateDirectory: string
  readonly subnetFile: string
  readonly cniDirectory: string
  /** Whether a few peers are asked for large packets. */
  readonly askPeers: boolean
  /** Files that a container engine may have its options in. */
  readonly engineOptionFiles: readonly string[]
}

export const DEFAULT_CNI_DIRECTORY = '/etc/cni/net.d'
/** Where mk-docker-opts.sh and its likes write. */
export const ENGINE_OPTION_FILES = ['/run/docker_opts.env', '/run/flannel/docker', '/run/flannel_docker_opts.env']

/** Counters are read again after this time, milliseconds: the status is rewritten once a second. */
const SAMPLE_MS = 1300

/** Time that a program may take, milliseconds. */
const PROGRAM_MS = 5000

/** Looks at everything that checks judge. What cannot be looked at is a fact with its reason, and nothing is thrown. */
export async function gatherFacts(options: GatherOptions): Promise<Facts> {
  const view = await askNodeView(options.stateDirectory)
  const pid = view.alive ? (view.status?.pid ?? null) : null
  const apiSocket = apiSocketOf(pid, options.stateDirectory)
  const elsewhere = pid !== null && !sharesNetwork(pid)
  const underlay = view.status?.node?.underlayInterface
  /** Of another network namespace nothing is said here: it would be said of the wrong host. */
  const lookHere: LookHere = <T>(read: () => Promise<T>) =>
    elsewhere ? Promise.resolve(unknown<T>('the daemon lives in another network namespace')) : look(read)
  const [network, filters, managed, apiAnswers, laterCounters, system] = await Promise.all([
    readNetwork(underlay, lookHere),
    readFilters(lookHere),
    lookHere(readManaged),
    look(() => socketAnswers(apiSocket)),
    sampleAgain(view),
    readSystem(pid),
  ])
  const daemonWords = pid === null ? unknown<string[]>('the daemon does not run') : await look(async () => wordsOf(pid))
  // Only now: what becomes of such packets would count as traffic of pods.
  const largePackets = options.askPeers && view.alive ? await lookHere(() => askForLargePackets(view)) : null
  const names = network.links.seen ? network.links.value.map(({ ifname }) => ifname) : []
  return {
    ...system,
    now: Date.now(),
    view,
    elsewhere,
    daemonWords,
    apiSocket,
    apiAnswers,
    stateProblem: system.root ? storageProblem(options.stateDirectory) : null,
    laterCounters,
    ...network,
    ...filters,
    settings: elsewhere ? new Map() : readSettings(names),
    managed,
    largePackets,
    subnetFilePath: options.subnetFile,
    subnetFile: await look(async () => readOrNull(options.subnetFile)),
    engineOptions: readEngineOptions(daemonWords, options.engineOptionFiles),
    cniConfigs: readCniConfigs(options.cniDirectory),
  }
}

type LookHere = <T>(read: () => Promise<T>) => Promise<Looked<T>>

async function readNetwork(underlay: string | undefined, lookHere: LookHere) {
  const [links, routes, ipv6Routes, offloads, udpPorts] = await Promise.all([
    lookHere(() => showJson<LinkInfo>('ip', ['address', 'show'])),
    lookHere(() => showJson<RouteInfo>('ip', ['-4', 'route', 'show'])),
    lookHere(() => showJson<RouteInfo>('ip', ['-6', 'route', 'show'])),
    underlay === undefined
      ? unknown<Record<string, boolean>>('no daemon has named an underlay interface')
      : lookHere(() => readFeatures(underlay)),
    lookHere(async () => parsePorts(await run(['ss', '-Hulnp'], { timeoutMs: PROGRAM_MS }))),
  ])
  return { links, routes, ipv6Routes, offloads, udpPorts }
}

async function askForLargePackets(view: NodeView) {
  const place = await ladderPlaceOf(view.status)
  return place === null ? [] : lookAtLargePackets(view, place, realTools(view.status))
}

const unknown = <T>(why: string): Looked<T> => ({ seen: false, why })

async function look<T>(read: () => Promise<T>): Promise<Looked<T>> {
  try {
    return { seen: true, value: await read() }
  } catch (error) {
    const { message } = error as Error
    return { seen: false, why: error instanceof FlanneletteError ? error.oneLine : message }
  }
}

/** Only a daemon that has dropped something is worth the wait. */
async function sampleAgain({ status, alive, stateDirectory }: NodeView): Promise<Facts['laterCounters']> {
  const dropped = status === null ? null : droppedPackets(status)
  if (!alive || (dropped ?? 0) === 0) return null
  await new Promise((resolve) => setTimeout(resolve, SAMPLE_MS))
  return (await askNodeView(stateDirectory)).status?.counters ?? null
}

/** Both ways to filter packets, for each family; one of them is enough to have seen something. */
async function readFilters(lookHere: LookHere): Promise<Pick<Facts, 'firewall' | 'ipv6Firewall' | 'natRules'>> {
  const ruleset = lookHere(() => run(['nft', '-j', 'list', 'ruleset'], { timeoutMs: PROGRAM_MS }))
  const [firewall, ipv6Firewall, natRules] = await Promise.all([
    lookHere(() => readFirewall('iptables', ruleset)),
    lookHere(() => readFirewall('ip6tables', ruleset)),
    lookHere(() => new Iptables('ip', {}).translations()),
  ])
  return { firewall, ipv6Firewall, natRules }
}

async function readFirewall(program: FilterProgram, ruleset: Promise<Looked<string>>): Promise<FirewallChain[]> {
  const ofProgram = await look(async () => {
    return chainsOfIptables(await run([program, '-S'], { timeoutMs: PROGRAM_MS }), program)
  })
  const listed = await ruleset
  const nft = await look(async () => {
    if (!listed.seen) throw new Error(listed.why)
    return chainsOfNft(listed.value, program, ofProgram.seen)
  })
  if (!ofProgram.seen && !nft.seen) throw new Error(nft.why)
  return [ofProgram, nft].flatMap((one) => (one.seen ? one.value : []))
}

/** Network managers that are not installed, or do not run, manage nothing. */
async function readManaged() {
  const [manager, networkd] = await Promise.all([
    textOf(['nmcli', '-t', '-f', 'DEVICE,STATE', 'device']),
    textOf(['networkctl', 'list', '--no-legend', '--no-pager']),
  ])
  return parseManaged(manager, networkd)
}

async function textOf(argv: readonly string[]): Promise<string> {
  try {
    const { exitCode, stdout } = await attempt(argv, { timeoutMs: PROGRAM_MS })
    return exitCode === 0 ? stdout : ''
  } catch {
    return ''
  }
}

/** Per device: with the names of all links and `all`. */
const DEVICE_SETTINGS = ['rp_filter', 'forwarding', 'accept_local']
const SETTINGS = ['net/ipv4/ip_forward', 'net/bridge/bridge-nf-call-iptables', 'net/ipv6/conf/all/forwarding']

function readSettings(links: readonly string[]): Map<string, string> {
  const paths = ['all', ...links].flatMap((name) => DEVICE_SETTINGS.map((one) => `net/ipv4/conf/${name}/${one}`))
  const settings = new Map<string, string>()
  for (const path of [...SETTINGS, ...paths]) {
    const value = readOrNull(`/proc/sys/${path}`, true)
    if (value !== null) settings.set(path, value.trim())
  }
  return settings
}

/** `null` when there is no such file. @throws Error when it cannot be read, unless `quiet` */
function readOrNull(path: string, quiet = false): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if (quiet || (error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}

/** Where the daemon writes them, else where others do. */
function readEngineOptions(daemonWords: Facts['daemonWords'], usual: readonly string[]): Facts['engineOptions'] {
  const named = daemonWords.seen ? optionOf(daemonWords.value, 'docker-opts-file') : null
  for (const path of named === null ? usual : [named]) {
    const text = readOrNull(path, true)
    if (text !== null) return { path, text }
  }
  return null
}

/** Files that container runtimes read, in their order. */
function readCniConfigs(directory: string): CniConfig[] | null {
  try {
    const files = readdirSync(directory).filter((name) => /\.(conf|conflist|json)$/.test(name))
    return files.sort().map((file) => ({ file, types: pluginTypes(readOrNull(join(directory, file), true) ?? '') }))
  } catch {
    return null
  }
}

function pluginTypes(text: string): string[] {
  try {
    const config = JSON.parse(text) as { type?: string; plugins?: readonly { type?: string }[] }
    return (config.plugins ?? [config]).flatMap(({ type }) => type ?? [])
  } catch {
    return []
  }
}
