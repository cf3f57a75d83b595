// `flannelette lab`: several hosts with pods on this machine. Words to calls of src/lab/lab.ts, results to text or
// JSON.

import { spawn } from 'node:child_process'
import { constants } from 'node:os'
import { setImmediate as immediate } from 'node:timers/promises'
import { Command, InvalidArgumentError, Option } from 'commander'
import { DRIVERS } from '../config/flag-table.ts'
import { counted } from '../counted.ts'
import { EXIT, FlanneletteError } from '../errors.ts'
import { inNamespace } from '../host/command.ts'
import { describeFault, type Fault, parsePercent } from '../lab/faults.ts'
import { withOwnProgram } from '../lab/inside.ts'
import type { IperfOptions } from '../lab/iperf.ts'
import { Lab } from '../lab/lab.ts'
import type { AddressFamily } from '../lab/ping.ts'
import {
  LAB_BACKENDS,
  LAB_DEFAULTS,
  LAB_FAMILIES,
  type LabBackend,
  type LabFamily,
  type LabOptions,
  UNDERLAY_KINDS,
  type UnderlayKind,
} from '../lab/plan.ts'
import { interruption } from './interruption.ts'
import { demoCommand } from './lab-demo.ts'
import { iperfText, labStatusText, pingMatrix, pingText, suggestions } from './lab-output.ts'
import { terminalOf } from './table.ts'

type Output = 'text' | 'json'

interface CommonFlags {
  readonly name: string
  readonly output: Output
}

const EXAMPLES = `Examples:
  flannelette lab up                                   3 hosts, 2 pods each
  flannelette lab up --hosts 4 --kernel host2,host3    two of them with the kernel's VTEP
  flannelette lab up --direct-routing --routed host3   routes between host1 and host2, a tunnel to host3
  flannelette lab up --ipv6                            pods with IPv6 addresses as well
  flannelette lab up --family dual                     the same, by tunnels between IPv6 addresses of hosts
  flannelette lab ping all                             every pair of pods; with -6 by IPv6
  flannelette lab iperf pod1.1 pod3.1 --time 5
  flannelette lab exec pod1.1 -- ip route
  flannelette lab exec host1 -- flannelette status
  flannelette lab fault loss 1                         1 % of the packets between hosts
  flannelette lab heal
  flannelette lab down

`

export function labCommand(): Command {
  const lab = new Command('lab')
    .description('several hosts with pods on this machine, each a network namespace with a real daemon')
    .addHelpText('beforeAll', EXAMPLES)
  for (const command of [
    upCommand(),
    statusCommand(),
    execCommand(),
    pingCommand(),
    iperfCommand(),
    faultCommand(),
    healCommand(),
    downCommand(),
    demoCommand(),
  ]) {
    lab.addCommand(command)
  }
  return lab
}

function subcommand(usage: string, about: string): Command {
  return new Command(usage)
    .description(about)
    .option('--name <name>', 'which lab; several may be up at once', LAB_DEFAULTS.name)
    .addOption(new Option('-o, --output <form>', 'form of the result').choices(['text', 'json']).default('text'))
}

interface UpFlags extends CommonFlags {
  readonly hosts: number
  readonly pods: number
  readonly kernel: readonly string[]
  readonly auto: readonly string[]
  readonly backend: LabBackend
  readonly underlay: UnderlayKind
  readonly direct?: boolean
  readonly routed: readonly string[]
  readonly directRouting?: boolean
  readonly family: LabFamily
  readonly ipv6?: boolean
  readonly nftables?: boolean
  readonly udpChecksum: 'on' | 'off'
  readonly driver?: string
  readonly daemonArg: readonly string[]
}

function upCommand(): Command {
  return subcommand('up', 'bring a lab up and wait until its daemons know each other')
    .option('--hosts <n>', 'number of hosts', wholeNumber, LAB_DEFAULTS.hosts)
    .option('--pods <n>', 'pods on each host', wholeNumber, LAB_DEFAULTS.pods)
    .option('--kernel <hosts>', 'hosts with the kernel as dataplane: host2,host3', commaList, [])
    .option('--auto <hosts>', 'hosts that take the kernel as dataplane where they can', commaList, [])
    .addOption(
      new Option('--backend <type>', 'backend of the network').choices(LAB_BACKENDS).default(LAB_DEFAULTS.backend),
    )
    .addOption(
      new Option(
        '--underlay <kind>',
        'veth: super-packets pass; uso: UDP segmentation offload; wire: MTU-sized packets',
      )
        .choices([...UNDERLAY_KINDS])
        .default('veth'),
    )
    .option('--direct', 'two hosts joined by one link, without a switch')
    .option('--routed <hosts>', 'hosts on a second link, behind a router: host3', commaList, [])
    .option('--direct-routing', 'hosts on one link reach pods by routes, past the tunnels')
    .addOption(
      new Option('--family <family>', 'addresses of hosts and pods, and tunnels between them')
        .choices([...LAB_FAMILIES])
        .default(LAB_DEFAULTS.family),
    )
    .option('--ipv6', 'IPv6 addresses for the pods as well, carried over the IPv4 underlay')
    .option('--nftables', 'firewall rules of the daemons in nftables form')
    .addOption(
      new Option('--udp-checksum <mode>', 'outer UDP checksums of kernel hosts').choices(['on', 'off']).default('on'),
    )
    .addOption(new Option('--driver <kind>', 'driver of the userspace hosts').choices(DRIVERS))
    .option('--daemon-arg <word>', 'one more word for the command line of each daemon (repeatable)', collect, [])
    .action(async (flags: UpFlags) => {
      const signal = interruption()
      const lab = await Lab.up(labOptions(flags), { progress, signal })
      show(flags, lab.report(), () => labStatusText(lab.report(), terminalOf(process.stdout)))
      if (flags.output === 'text') process.stderr.write(`\n${suggestions(lab.report())}`)
      await immediate() // a failed write is known by now
      // Nobody has been told of this lab.
      if (signal.aborted) await lab.down()
      signal.throwIfAborted()
    })
}

function labOptions(flags: UpFlags): LabOptions {
  const { name, hosts, pods, kernel, auto, backend, underlay, family, routed } = flags
  return {
    ...{ name, hosts, pods, kernel, auto, backend, underlay, family, routed },
    directRouting: flags.directRouting === true,
    direct: flags.direct === true,
    ipv6: flags.ipv6 === true,
    nftables: flags.nftables === true,
    udpChecksum: flags.udpChecksum === 'on',
    daemonArguments: [...(flags.driver === undefined ? [] : ['--driver', flags.driver]), ...flags.daemonArg],
  }
}

function statusCommand(): Command {
  return subcommand('status', 'hosts, daemons, pods and faults').action((flags: CommonFlags) => {
    const report = Lab.open(flags.name).report()
    show(flags, report, () => labStatusText(report, terminalOf(process.stdout)))
    if (report.hosts.some((host) => host.status?.state !== 'ready')) process.exitCode = EXIT.failed
  })
}

function execCommand(): Command {
  return subcommand('exec', 'run a program in a host, a pod or the switch')
    .argument('<member>', 'host1, pod1.1, switch, …')
    .argument('<command...>', 'the program and its arguments, after --')
    .action(async (member: string, words: string[], flags: CommonFlags) => {
      process.exitCode = await runInside(Lab.enter(flags.name).namespace(member), withOwnProgram(words))
    })
}

/** Terminal and exit code are the program's own. */
function runInside(namespace: string, words: readonly string[]): Promise<number> {
  const [program = '', ...args] = inNamespace(namespace, words)
  const child = spawn(program, args, { stdio: 'inherit' })
  const ignore = () => {}
  process.on('SIGINT', ignore) // the terminal sends it to the program as well, which decides
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('exit', (code, name) => {
      process.off('SIGINT', ignore)
      resolve(code ?? 128 + (name === null ? 0 : constants.signals[name]))
    })
  })
}

interface PingFlags extends CommonFlags {
  readonly 6?: boolean
  readonly count: number
  readonly size?: number
}

function pingCommand(): Command {
  return subcommand('ping', 'ping one member from another, or every pair of pods')
    .argument('<from>', 'pod1.1, host1, …, or all')
    .argument('[to]', 'whom to ping, also by address')
    .option('-6', 'by IPv6 addresses')
    .option('-c, --count <n>', 'echo requests per pair', wholeNumber, 1)
    .option('-s, --size <bytes>', 'payload', wholeNumber)
    .action(async (from: string, to: string | undefined, flags: PingFlags) => {
      checkPair(from, to)
      const lab = Lab.enter(flags.name)
      const options = {
        ...familyOf(flags),
        count: flags.count,
        ...(flags.size === undefined ? {} : { sizeBytes: flags.size }),
      }
      const results = to === undefined ? await lab.pingAll(options) : [await lab.ping(from, to, options)]
      const terminal = terminalOf(process.stdout)
      const [only] = results
      show(flags, results, () =>
        to !== undefined && only !== undefined ? pingText(only, terminal) : pingMatrix(results, terminal),
      )
      if (results.some((result) => result.received < result.sent)) process.exitCode = EXIT.failed
    })
}

function familyOf(flags: { readonly 6?: boolean }): { readonly family?: AddressFamily } {
  return flags[6] === true ? { family: 6 } : {}
}

function checkPair(from: string, to: string | undefined): void {
  if (from === 'all' && to !== undefined) {
    throw new FlanneletteError('usage', `"all" is every pair of pods: ${to} is one word too many`, {
      remedy: 'use: ping all, or name two members',
    })
  }
  if (from !== 'all' && to === undefined) {
    throw new FlanneletteError('usage', `nobody is named for ${from} to ping`, {
      remedy: 'add a second member, or use: ping all',
    })
  }
}

interface IperfFlags extends CommonFlags {
  readonly 6?: boolean
  readonly udp?: boolean
  readonly bitrate?: string
  readonly length?: number
  readonly time: number
  readonly streams?: number
}

function iperfCommand(): Command {
  return subcommand('iperf', 'throughput between two members, by iperf3')
    .argument('<from>', 'sender')
    .argument('<to>', 'receiver, also by address')
    .option('-6', 'by IPv6 addresses')
    .option('-u, --udp', 'datagrams instead of a TCP stream')
    .option('-b, --bitrate <rate>', 'rate to send at, such as 100M')
    .option('-l, --length <bytes>', 'bytes of a datagram or write', wholeNumber)
    .option('-t, --time <seconds>', 'how long', wholeNumber, 3)
    .option('-P, --streams <n>', 'parallel streams', wholeNumber)
    .action(async (from: string, to: string, flags: IperfFlags) => {
      const options: IperfOptions = {
        ...familyOf(flags),
        udp: flags.udp === true,
        signal: interruption(),
        seconds: flags.time,
        ...(flags.bitrate === undefined ? {} : { bitrate: flags.bitrate }),
        ...(flags.length === undefined ? {} : { lengthBytes: flags.length }),
        ...(flags.streams === undefined ? {} : { streams: flags.streams }),
      }
      const result = await Lab.enter(flags.name).iperf(from, to, options)
      show(flags, result, () => iperfText(result))
    })
}

function faultCommand(): Command {
  const apply = async (fault: Fault, flags: CommonFlags) => {
    await Lab.enter(flags.name).fault(fault)
    show(flags, fault, () => `${describeFault(fault)}\n`)
  }
  const share = '<percent>'
  return new Command('fault')
    .description('break something on purpose; `heal` repairs it')
    .addCommand(
      subcommand('loss', 'lose a share of the packets between hosts')
        .argument(share)
        .action((percent: string, flags: CommonFlags) =>
          apply({ kind: 'loss', percent: parsePercent(percent) }, flags),
        ),
    )
    .addCommand(
      subcommand('duplicate', 'deliver a share of the packets between hosts twice')
        .argument(share)
        .action((percent: string, flags: CommonFlags) =>
          apply({ kind: 'duplicate', percent: parsePercent(percent) }, flags),
        ),
    )
    .addCommand(
      subcommand('cut', 'let nothing pass to and from a host, or between two')
        .argument('<host>')
        .argument('[other]')
        .action((host: string, other: string | undefined, flags: CommonFlags) =>
          apply({ kind: 'cut', hosts: other === undefined ? [host] : [host, other] }, flags),
        ),
    )
    .addCommand(
      subcommand('crash', "kill a host's daemon (kill -9)")
        .argument('<host>')
        .action((host: string, flags: CommonFlags) => apply({ kind: 'crash', host }, flags)),
    )
}

function healCommand(): Command {
  return subcommand('heal', 'take faults away and start daemons again that do not run')
    .argument('[what]', 'loss, duplicate, cut, crash, or a host; everything when absent')
    .action(async (what: string | undefined, flags: CommonFlags) => {
      const lab = Lab.enter(flags.name)
      await lab.heal(what)
      const { faults } = lab.report()
      show(flags, faults, () => `faults: ${faults.length === 0 ? 'none' : faults.map(describeFault).join(', ')}\n`)
    })
}

function downCommand(): Command {
  return subcommand('down', 'remove the lab: daemons, namespaces, files').action(async (flags: CommonFlags) => {
    const removed = await Lab.down(flags.name)
    const text = `removed ${counted(removed.daemons, 'daemon')} and ${counted(removed.namespaces, 'namespace')}\n`
    show(flags, removed, () => (removed.namespaces === 0 && !removed.files ? `no lab "${flags.name}"\n` : text))
  })
}

/** Data goes to standard output, in the form that was asked for. */
function show(flags: CommonFlags, data: unknown, text: () => string): void {
  process.stdout.write(flags.output === 'json' ? `${JSON.stringify(data, null, 2)}\n` : text())
}

function progress(line: string): void {
  process.stderr.write(`${line}\n`)
}

function wholeNumber(text: string): number {
  if (/^\d{1,9}$/.test(text)) return Number(text)
  throw new InvalidArgumentError('a whole number is wanted')
}

/** Given several times, all count. */
function commaList(text: string, before: readonly string[]): string[] {
  const words = text.split(',').map((word) => word.trim())
  return [...before, ...words.filter(Boolean)]
}

function collect(word: string, words: readonly string[]): string[] {
  return [...words, word]
}
