// `flannelette lab demo`: the whole story in one command. Brings a lab up, shows that every pod reaches every other
// one, what the daemons know and what one ping looks like on its way, says what to try next, and stays until Ctrl-C.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { Command } from 'commander'
import { EXIT } from '../errors.ts'
import { Lab } from '../lab/lab.ts'
import { labFiles } from '../lab/lab-state.ts'
import { interruption } from './interruption.ts'
import { iperfText, labStatusText, pingMatrix, suggestions } from './lab-output.ts'
import { pingJourney } from './ping-journey.ts'
import { paint, shown, type Terminal, table, terminalOf } from './table.ts'

const EXAMPLES = `Examples:
  flannelette lab demo           stays up until Ctrl-C; try the other lab commands meanwhile
  flannelette lab demo --once    cleans up at the end; exit code 0 only if everything worked

`

interface DemoFlags {
  readonly once?: boolean
  readonly name: string
}

export function demoCommand(): Command {
  return new Command('demo')
    .description('a lab of three hosts, one of them with the kernel as dataplane where it can, and a tour of it')
    .option('--once', 'clean up and end after the tour')
    .option('--name <name>', 'name of the lab', 'demo')
    .addHelpText('beforeAll', EXAMPLES)
    .action(async (flags: DemoFlags) => {
      process.exitCode = await runDemo(flags)
    })
}

async function runDemo(flags: DemoFlags): Promise<number> {
  const signal = interruption()
  const say = (line: string) => void process.stderr.write(`${line}\n`)
  const lab = await Lab.up(
    // Where the kernel has no vxlan the tour is the same, with three hosts of one kind.
    { name: flags.name, hosts: 3, pods: 2, auto: ['host2'] },
    { progress: say, signal, owned: true },
  )
  let worked = false
  let toured = false
  try {
    worked = await tour(lab, terminalOf(process.stdout), signal)
    toured = !signal.aborted
    if (flags.once !== true && toured) {
      process.stderr.write(`\n${suggestions(lab.report())}\nthe lab stays up until Ctrl-C\n`)
      await untilAborted(signal)
    }
  } catch (error) {
    // Ctrl-C reaches the programs that are just running as well; what they say of it is not worth a line.
    if (!signal.aborted) throw error
  } finally {
    say('taking the lab down')
    await lab.down()
  }
  if (!toured) return EXIT.interrupted
  return worked ? EXIT.ok : EXIT.failed
}

/** Each part prints what it shows and says whether it went well. */
async function tour(lab: Lab, terminal: Terminal, signal: AbortSignal): Promise<boolean> {
  const parts: readonly (readonly [string, () => Promise<boolean>])[] = [
    ['Hosts and pods', async () => show(labStatusText(lab.report(), terminal))],
    ['Every pod pings every other pod', () => pingEveryPair(lab, terminal)],
    ['Throughput, TCP, from host to host', () => measure(lab, signal)],
    ['Leases, and the forwarding table of host1', async () => showLeases(lab)],
    ['One ping from pod1.1 to pod3.1, step by step', () => followPing(lab, terminal)],
  ]
  let worked = true
  for (const [title, part] of parts) {
    if (signal.aborted) return false
    process.stdout.write(`\n${paint('bold', title, terminal)}\n`)
    if (!(await part())) worked = false
  }
  return worked
}

function show(text: string): boolean {
  process.stdout.write(text)
  return true
}

async function pingEveryPair(lab: Lab, terminal: Terminal): Promise<boolean> {
  const results = await lab.pingAll({ count: 2 })
  show(pingMatrix(results, terminal))
  return results.every((result) => result.received === result.sent)
}

async function measure(lab: Lab, signal: AbortSignal): Promise<boolean> {
  let worked = true
  for (const [from, to] of [
    ['pod1.1', 'pod3.1'],
    ['pod1.1', 'pod2.1'],
    ['pod2.1', 'pod3.1'],
  ] as const) {
    const result = await lab.iperf(from, to, { seconds: 2, signal })
    show(iperfText(result))
    if (!(result.bitsPerSecond > 0)) worked = false
  }
  return worked
}

/**
 * The leases as the daemons hold them, one as it stands in the store, and the forwarding table that follows from them.
 */
function showLeases(lab: Lab): boolean {
  const hosts = lab.report().hosts
  const leases = hosts.map(({ name, status }) => {
    const { subnet = '', publicIp = '', vtepMac, expiresAt } = status?.lease ?? {}
    return [name, subnet, publicIp, vtepMac ?? '', expiresAt ?? 'never']
  })
  show(table(['HOST', 'SUBNET', 'PUBLIC IP', 'VTEP MAC', 'EXPIRES'], leases))
  const [first] = hosts
  const status = first?.status ?? null
  if (first === undefined || status === null) return false
  const file = join(labFiles(lab.name).store, 'subnets', first.subnet.replace('/', '-'))
  const [value] = readFileSync(file, 'utf8').split('\n')
  show(`in the store, as flannel writes it: ${first.subnet} ${value}\n\n`)
  const rows = status.peers.map((peer) => [peer.subnet, peer.publicIp, peer.vtepMac ?? ''])
  show(`${table(['TO', 'UNDERLAY', 'VTEP MAC'], rows)}${first.name}, table generation ${status.generation}\n`)
  return status.peers.length === lab.hosts.length - 1
}

async function followPing(lab: Lab, terminal: Terminal): Promise<boolean> {
  const journey = await pingJourney(lab, 'pod1.1', 'pod3.1', terminal)
  show(shown(journey.text, terminal))
  return journey.complete
}

async function untilAborted(signal: AbortSignal): Promise<void> {
  try {
    for (;;) await pause(1 << 30, undefined, { signal })
  } catch {
    // that is what it waited for
  }
}
