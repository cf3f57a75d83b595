// `flannelette status`: how the node of this host is, once, again and again, or as soon as it is as it should be.
import { resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { Command, InvalidArgumentError, Option } from 'commander'
import { DEFAULT_STATE_DIRECTORY } from '../config/flag-table.ts'
import { meantDaemon } from '../daemon/meant-daemon.ts'
import { findStatus, type StatusPlace } from '../daemon/status-source.ts'
import { EXIT, type FlanneletteError } from '../errors.ts'
import { labAround } from '../lab/inside.ts'
import { parseDuration } from './duration.ts'
import { interruption } from './interruption.ts'
import { exitCodeOf, reportOf, type StatusReport } from './status-report.ts'
import { peerNames, statusText } from './status-text.ts'
import { terminalOf } from './table.ts'

const WATCH_MS = 1000
const WAIT_MS = 100

const EXAMPLES = `Examples:
  flannelette status
  flannelette status --watch
  flannelette status --wait --for ready --timeout 60s       as a step of a script
  flannelette status --wait --for peers=3
  flannelette status -o json | jq '.status.peers[].publicIp'
  flannelette lab exec host1 -- flannelette status          of a lab's host

`

const EXITS = `
Exit codes:
  0    ready; with --wait: as waited for
  1    degraded, or not ready yet
  2    wrong usage
  3    --wait: the time limit is reached
  4    no daemon answers; what a dead one said last is shown
  5    not permitted: the local socket is root's
  130  interrupted
`

type Output = 'text' | 'wide' | 'json' | 'yaml' | 'name'
type Goal = { readonly kind: 'ready' } | { readonly kind: 'peers'; readonly count: number }

interface Flags {
  readonly stateDir?: string
  readonly apiSocket?: string
  readonly output: Output
  readonly json?: boolean
  readonly watch?: boolean
  readonly wait?: boolean
  readonly for: Goal
  readonly timeout: number
}

/** What the command needs of its surroundings. */
export interface StatusEnvironment {
  readonly out: (text: string) => void
  readonly exit: (code: number) => void
  /** For what is no data. */
  readonly tell: (text: string) => void
}

export function statusCommand({ out, exit, tell }: StatusEnvironment): Command {
  return new Command('status')
    .description("how this host's node is: lease, peers, drops, warnings, what to type next")
    .addHelpText('before', EXAMPLES)
    .addHelpText('after', EXITS)
    .option('--state-dir <path>', `where the daemon keeps its state (default: "${DEFAULT_STATE_DIRECTORY}")`)
    .option('--api-socket <path>', "the daemon's local socket (default: api.sock in the state directory)")
    .addOption(
      new Option('-o, --output <form>', 'form of the result')
        .choices(['text', 'wide', 'json', 'yaml', 'name'])
        .default('text'),
    )
    .option('--json', 'as -o json')
    .option('-w, --watch', 'show it anew each second')
    .option('--wait', 'wait until it is as --for says, then show it')
    .addOption(goalOption())
    .addOption(new Option('--timeout <duration>', 'longest wait').argParser(parseDuration).default(60_000, '60s'))
    .action(async (flags: Flags) => {
      const place: StatusPlace = {
        stateDirectory: flags.stateDir ?? labAround()?.stateDirectory ?? (await meantHere(tell)),
        ...(flags.apiSocket === undefined ? {} : { apiSocket: flags.apiSocket }),
      }
      const form = flags.json === true ? 'json' : flags.output
      if (flags.wait === true) exit(await wait(place, flags, form, { out, tell }))
      else if (flags.watch === true) await watch(place, form, out)
      else exit(await once(place, form, out))
    })
}

/** Where the daemon is that nobody has named; what else runs here is told beside the answer. */
async function meantHere(tell: (text: string) => void): Promise<string> {
  const { stateDirectory, notice } = await meantDaemon()
  if (notice !== '') tell(`${notice}\n`)
  return stateDirectory
}

function goalOption(): Option {
  const goal: Goal = { kind: 'ready' }
  return new Option('--for <goal>', 'ready, or peers=N: at least so many').argParser(parseGoal).default(goal, 'ready')
}

async function once(place: StatusPlace, form: Output, out: (text: string) => void): Promise<number> {
  const report = reportOf(await findStatus(place), wordsFor(place))
  out(await render(report, form))
  return exitCodeOf(report)
}

/** Until Ctrl-C. A daemon that is away for a while is waited for. */
async function watch(place: StatusPlace, form: Output, out: (text: string) => void): Promise<never> {
  const signal = interruption()
  const isScreen = process.stdout.isTTY === true && (form === 'text' || form === 'wide')
  for (;;) {
    const text = await reported(place).then(
      (report) => render(report, form),
      (error: FlanneletteError) => `${error.oneLine}\n`,
    )
    // Home, each line cleared to its end, and all below it: no flicker.
    out(isScreen ? `\x1b[H${text.replaceAll('\n', '\x1b[K\n')}\x1b[J` : `${text}${form === 'text' ? '\n' : ''}`)
    await pause(WATCH_MS, undefined, { signal }).catch(() => {})
    signal.throwIfAborted()
  }
}

async function wait(
  place: StatusPlace,
  flags: Flags,
  form: Output,
  { out, tell }: Pick<StatusEnvironment, 'out' | 'tell'>,
): Promise<number> {
  const signal = interruption()
  const deadline = performance.now() + flags.timeout
  let why = ''
  for (;;) {
    const report = await reported(place).catch((error: FlanneletteError) => {
      if (!error.retryable) throw error
      why = `: ${error.oneLine}`
      return null
    })
    if (report !== null && isReached(report, flags.for)) {
      out(await render(report, form))
      return EXIT.ok
    }
    if (performance.now() >= deadline) {
      if (report !== null) out(await render(report, form))
      tell(`not ${goalText(flags.for)} within ${flags.timeout / 1000} s${report === null ? why : ''}\n`)
      return EXIT.timeout
    }
    await pause(WAIT_MS, undefined, { signal }).catch(() => {})
    signal.throwIfAborted()
  }
}

/** What commands have to be told to find this daemon as well, unless they do by themselves. */
function wordsFor({ stateDirectory }: StatusPlace): string[] {
  const byThemselves = labAround()?.stateDirectory ?? DEFAULT_STATE_DIRECTORY
  return resolve(stateDirectory) === byThemselves ? [] : ['--state-dir', stateDirectory]
}

async function reported(place: StatusPlace): Promise<StatusReport> {
  return reportOf(await findStatus(place), wordsFor(place))
}

/** So many peers are no help unless packets reach them: none may be pending. */
function isReached({ daemon, ready, status }: StatusReport, goal: Goal): boolean {
  if (daemon === 'dead') return false
  return goal.kind === 'ready' ? ready : status.peers.length - status.pendingPeers >= goal.count
}

async function render(report: StatusReport, form: Output): Promise<string> {
  if (form === 'json') return `${JSON.stringify(report, null, 2)}\n`
  if (form === 'name') return peerNames(report)
  if (form === 'yaml') return (await import('yaml')).stringify(report)
  return statusText(report, terminalOf(process.stdout), Date.now(), form === 'wide')
}

function goalText(goal: Goal): string {
  return goal.kind === 'ready' ? 'ready' : `${goal.count} peers`
}

function parseGoal(text: string): Goal {
  if (text === 'ready') return { kind: 'ready' }
  const count = /^peers=(\d{1,6})$/.exec(text)?.[1]
  if (count !== undefined) return { kind: 'peers', count: Number(count) }
  throw new InvalidArgumentError('ready or peers=N is wanted')
}
