// `flannelette ping NODE`: the way to a node as a ladder, each rung with its verdict, the first that fails explained.
import { setMaxListeners } from 'node:events'
import { Command, InvalidArgumentError, Option } from 'commander'
import { DEFAULT_STATE_DIRECTORY } from '../config/flag-table.ts'
import { meantDaemon } from '../daemon/meant-daemon.ts'
import { climb } from '../doctor/ladder.ts'
import { askNodeView } from '../doctor/node-view.ts'
import { ladderPlaceOf, realTools } from '../doctor/place.ts'
import type { LadderOptions, Rung } from '../doctor/rung.ts'
import { findTarget } from '../doctor/target.ts'
import { EXIT, FlanneletteError } from '../errors.ts'
import { sharesNetwork } from '../host/network-namespace.ts'
import { labAround } from '../lab/inside.ts'
import { checkCount } from '../lab/plan.ts'
import { parseDuration } from './duration.ts'
import { markColumn, shown, type Terminal, terminalOf } from './table.ts'

const EXAMPLES = `Examples:
  flannelette ping 192.0.2.7                   a node by its public address
  flannelette ping 10.244.2.0/24               by its subnet, or any address in it
  flannelette ping 10.244.2.17 -n 20           more echoes on each rung: shows loss
  flannelette lab exec host1 -- flannelette ping host2    in a lab also by name

`

const EXITS = `
Exit codes: 0 every rung holds, 1 a rung failed, 2 wrong usage, 3 the time limit came first
`

interface Flags {
  readonly count: number
  readonly timeout: number
  readonly stateDir?: string
  readonly output: 'text' | 'json'
}

/** `exit` receives the code. */
export function pingNodeCommand(exit: (code: number) => void): Command {
  return new Command('ping')
    .description('the way to another node, layer by layer: lease, underlay, VTEP, sizes, pod side')
    .addHelpText('beforeAll', EXAMPLES)
    .addHelpText('after', EXITS)
    .argument('<node>', 'public address, subnet, or an address in the subnet')
    .option('-n, --count <n>', 'echo requests on each rung (1-1000)', Number, 3)
    .addOption(
      new Option('--timeout <duration>', 'limit for the whole ladder, as 30s or 2m')
        .argParser(parseLimit)
        .default(30_000, '30s'),
    )
    .option('--state-dir <path>', `where the daemon keeps its state (default: "${DEFAULT_STATE_DIRECTORY}")`)
    .addOption(new Option('-o, --output <form>', 'form of the result').choices(['text', 'json']).default('text'))
    .action(async (node: string, flags: Flags) => exit(await pingNode(node, flags)))
}

const LONGEST_MS = 86_400_000

function parseLimit(text: string): number {
  const ms = parseDuration(text)
  if (ms > 0 && ms <= LONGEST_MS) return ms
  throw new InvalidArgumentError('a time limit is above 0 and at most 24h')
}

async function pingNode(word: string, flags: Flags): Promise<number> {
  checkCount('--count', flags.count, 1, 1000)
  const around = labAround()
  const view = await askNodeView(flags.stateDir ?? around?.stateDirectory ?? (await meantDaemon()).stateDirectory)
  const pid = view.alive ? view.status?.pid : undefined
  if (pid !== undefined && !sharesNetwork(pid)) throw elsewhere(word, pid, view.stateDirectory)
  const target = findTarget(word, view, around?.names)
  if (target === null) throw unknownWord(word, [...(around?.names.keys() ?? [])])
  const terminal = terminalOf(process.stdout)
  const text = flags.output === 'text'
  const rungs: Rung[] = []
  const signal = AbortSignal.timeout(flags.timeout)
  setMaxListeners(0, signal) // one for each echo at work, and all at once when sizes are searched
  const options: LadderOptions = {
    count: flags.count,
    place: await ladderPlaceOf(view.status),
    tools: realTools(view.status),
    signal,
    onRung: (rung) => {
      rungs.push(rung)
      if (text) process.stdout.write(rungText(rung, terminal))
    },
  }
  let timedOut = false
  try {
    await climb(target, view, options)
  } catch (error) {
    if (!signal.aborted) throw error
    timedOut = true
  }
  const failed = rungs.find(({ verdict }) => verdict === 'bad')
  const result = timedOut ? 'timeout' : failed === undefined ? 'reached' : 'failed'
  if (!text) process.stdout.write(`${JSON.stringify({ version: 1, node: word, result, rungs }, null, 2)}\n`)
  else if (timedOut) process.stderr.write(`no result within ${flags.timeout / 1000} s\n`)
  return timedOut ? EXIT.timeout : failed === undefined ? EXIT.ok : EXIT.failed
}

function elsewhere(word: string, pid: number, stateDirectory: string): FlanneletteError {
  return new FlanneletteError('usage', `the daemon (pid ${pid}) lives in another network namespace`, {
    remedy: `ask from there: nsenter -t ${pid} -n flannelette ping ${word} --state-dir ${stateDirectory}`,
  })
}

function unknownWord(word: string, names: readonly string[]): FlanneletteError {
  const remedy =
    names.length > 0
      ? `give an address or one of ${names.join(', ')}`
      : 'give a public address, a subnet, or an address in it; names of a lab are known on its hosts: flannelette lab exec host1 -- …'
  return new FlanneletteError('usage', `"${word}" is no address of a node`, { remedy })
}

const NAMES: Readonly<Record<Rung['name'], string>> = {
  store: 'store',
  underlay: 'underlay',
  route: 'route',
  vtep: 'VTEP',
  'underlay-ipv6': 'underlay6',
  'vtep-ipv6': 'VTEP IPv6',
  'route-ipv6': 'route6',
  sizes: 'sizes',
  'sizes-ipv6': 'sizes6',
  'pod-side': 'pod side',
  'pod-side-ipv6': 'pod side6',
}

/** One rung as one line, and one more for what to do when it does not hold. */
export function rungText({ name, verdict, text, averageMs, next }: Rung, terminal: Terminal): string {
  const time = averageMs === null ? '' : `  ${averageMs.toFixed(2)} ms`
  const line = `  ${NAMES[name].padEnd(9)} ${markColumn(SIGNS[verdict], terminal)} ${shown(text, terminal)}${time}\n`
  if (next === null) return line
  return `${line}  ${' '.repeat(9)} ${shown('→', terminal)} ${shown(next, terminal)}\n`
}

const SIGNS = { good: 'good', bad: 'bad', warning: '!', unproven: '?', skipped: '-' } as const
