// `flannelette doctor`: looks at this host, says what is wrong and what to do; changes nothing.
import { Command, Option } from 'commander'
import { DEFAULT_STATE_DIRECTORY } from '../config/flag-table.ts'
import { DEFAULT_SUBNET_FILE } from '../config/subnet-file.ts'
import { meantDaemon } from '../daemon/meant-daemon.ts'
import { writeBundle } from '../doctor/bundle.ts'
import { examine } from '../doctor/checks/all.ts'
import type { Facts } from '../doctor/facts.ts'
import type { Finding } from '../doctor/finding.ts'
import { DEFAULT_CNI_DIRECTORY, ENGINE_OPTION_FILES, gatherFacts } from '../doctor/gather.ts'
import { askPeers, judgePeers, type MatrixRow } from '../doctor/peer-matrix.ts'
import { ladderPlaceOf, realTools } from '../doctor/place.ts'
import { EXIT } from '../errors.ts'
import { labAround } from '../lab/inside.ts'
import { bundleText, type DoctorReport, doctorJson, doctorText, summaryOf } from './doctor-output.ts'
import { terminalOf } from './table.ts'

const EXAMPLES = `Examples:
  flannelette doctor                            what is wrong on this host, and what to do
  flannelette doctor -v                         everything that was looked at
  flannelette doctor --peers                    asks every peer: underlay, tunnel, sizes
  flannelette doctor --bundle trouble.tar.gz    all of it in one file for somebody else, without secrets

`

const EXITS = `
Exit codes: 0 nothing is wrong, 1 something is (with --strict also for warnings), 2 wrong usage
`

interface Flags {
  readonly verbose: boolean
  readonly strict: boolean
  readonly peers: boolean
  readonly bundle?: string
  readonly logFile?: string
  readonly stateDir?: string
  readonly subnetFile?: string
  readonly cniDir: string
  readonly output: 'text' | 'json'
}

/** `exit` receives the code. */
export function doctorCommand(exit: (code: number) => void): Command {
  return new Command('doctor')
    .description('check this host: kernel, daemon, lease, underlay, routes, firewall, pods; nothing is changed')
    .addHelpText('beforeAll', EXAMPLES)
    .addHelpText('after', EXITS)
    .option('-v, --verbose', 'also what is fine, and what could not be looked at', false)
    .option('--strict', 'warnings count: exit code 1', false)
    .option('--peers', 'ask every peer through the underlay and the tunnel', false)
    .option('--bundle <file>', 'pack report, state, logs and dumps into a .tar.gz; secrets are masked')
    .option('--log-file <file>', "the daemon's log, for the bundle, when journalctl does not have it")
    .option('--state-dir <path>', `where the daemon keeps its state (default: "${DEFAULT_STATE_DIRECTORY}")`)
    .option('--subnet-file <path>', `where CNI plugins look for it (default: "${DEFAULT_SUBNET_FILE}")`)
    .option('--cni-dir <path>', 'where CNI configs are', DEFAULT_CNI_DIRECTORY)
    .addOption(new Option('-o, --output <form>', 'form of the result').choices(['text', 'json']).default('text'))
    .action(async (flags: Flags) => exit(await doctor(flags)))
}

async function doctor(flags: Flags): Promise<number> {
  const around = labAround()
  const meant = flags.stateDir === undefined && around === null ? await meantDaemon() : null
  if (meant !== null && meant.notice !== '') process.stderr.write(`${meant.notice}\n`)
  const facts = await gatherFacts({
    stateDirectory: flags.stateDir ?? around?.stateDirectory ?? meant?.stateDirectory ?? DEFAULT_STATE_DIRECTORY,
    subnetFile: flags.subnetFile ?? around?.subnetFile ?? meant?.subnetFile ?? DEFAULT_SUBNET_FILE,
    cniDirectory: flags.cniDir,
    askPeers: !flags.peers,
    engineOptionFiles: ENGINE_OPTION_FILES,
  })
  const { peers, findings: ofPeers } = flags.peers ? await matrixOf(facts) : { peers: null, findings: [] }
  const findings = [...examine(facts), ...ofPeers]
  const report: DoctorReport = { at: new Date(facts.now).toISOString(), findings, peers, strict: flags.strict }
  const terminal = terminalOf(process.stdout)
  if (flags.output === 'json') process.stdout.write(doctorJson(report))
  else process.stdout.write(doctorText(report, terminal, flags.verbose))
  if (flags.bundle !== undefined) {
    const files = await writeBundle({
      path: flags.bundle,
      facts,
      report: { text: doctorText(report, { colour: false, unicode: true }, true), json: doctorJson(report) },
      logFile: flags.logFile ?? around?.log,
      cniDirectory: flags.cniDir,
    })
    process.stderr.write(bundleText(flags.bundle, files))
  }
  return summaryOf(report).healthy ? EXIT.ok : EXIT.failed
}

async function matrixOf({ view, elsewhere }: Facts): Promise<{ peers: MatrixRow[]; findings: Finding[] }> {
  const place = elsewhere ? null : await ladderPlaceOf(view.status)
  if (place === null) return { peers: [], findings: [] }
  const peers = await askPeers(view, place, realTools(view.status))
  return { peers, findings: judgePeers(peers, view.status?.node ?? null, place) }
}
