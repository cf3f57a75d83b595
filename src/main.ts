#!/usr/bin/env node
// argv → command → exit code. Whatever goes wrong is one line on stderr, never a stack trace.
import { realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { Command, CommanderError } from 'commander'
import { cleanupCommand } from './cli/cleanup.ts'
import { configCommand } from './cli/config.ts'
import { dockerOptsCommand } from './cli/docker-opts.ts'
import { doctorCommand } from './cli/doctor.ts'
import { type Failure, type FailureForm, failureFormOf, failureLine } from './cli/failure-line.ts'
import { interrupt, outputLoss } from './cli/interruption.ts'
import { labCommand } from './cli/lab.ts'
import { pingNodeCommand } from './cli/ping-node.ts'
import { runCommand } from './cli/run.ts'
import { statusCommand } from './cli/status.ts'
import { systemClock } from './clock.ts'
import { goWords } from './config/flag-values.ts'
import { runDaemon } from './daemon/daemon.ts'
import { EXIT, FlanneletteError } from './errors.ts'
import { readerOf } from './log.ts'
import { packageVersion } from './package-version.ts'

const EXAMPLES = `Examples:
  flannelette run --store file:/run/flannelette/store      this node joins the network
  flannelette status                                       how is it?
  flannelette lab up --hosts 3                             three hosts with pods on this machine
  flannelette lab ping all                                 does everybody reach everybody?
`

const EXITS = `
Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 time limit, 4 daemon not reachable, 5 not permitted,
130 interrupted
`

/** Commands whose help tells what exit codes mean for them. */
const HAVE_THEIR_OWN = ['run', 'status', 'ping', 'doctor', 'cleanup', 'config check']

/** By all its words: `lab ping` is not `ping`. */
function hasItsOwn(command: Command): boolean {
  const words = [command.name()]
  for (let above = command.parent; above?.parent; above = above.parent) words.unshift(above.name())
  return HAVE_THEIR_OWN.includes(words.join(' '))
}

/** Where text goes: data to stdout, everything else to stderr. */
export interface Output {
  out(text: string): void
  err(text: string): void
  /** Of the line about a failure; absent: for people. */
  readonly form?: FailureForm
}

/** The whole command line. `exit` receives the code of a command that has one of its own. */
export function program(output: Output, exit: (code: number) => void): Command {
  const root = new Command('flannelette')
    .description('flannel with a userspace dataplane')
    .version(packageVersion())
    .addHelpText('before', EXAMPLES)
    .addHelpText('afterAll', ({ command }) => (hasItsOwn(command) ? '' : EXITS))
    .addCommand(runCommand(runDaemon, exit).version(packageVersion(), '--version'))
    .addCommand(statusCommand({ out: output.out, exit, tell: output.err }))
    .addCommand(labCommand())
    .addCommand(configCommand(output.out, exit))
    .addCommand(dockerOptsCommand())
    .addCommand(pingNodeCommand(exit))
    .addCommand(doctorCommand(exit))
    .addCommand(cleanupCommand())
  for (const command of withSubcommands(root)) {
    command
      .exitOverride()
      .showSuggestionAfterError(true)
      .configureOutput({
        writeOut: output.out,
        writeErr: output.err,
        outputError: (text) => tell(mistake(text, command), output),
      })
  }
  return root
}

/** Runs one command line. Resolves with the exit code, or `undefined` when the command leaves it as it is. */
export async function main(argv: readonly string[], output: Output): Promise<number | undefined> {
  let code: number | undefined
  try {
    const root = program(output, (given) => {
      code = given
    })
    if (argv.length === 0) {
      output.err(root.helpInformation())
      return EXIT.usage
    }
    await root.parseAsync(flannelWords(argv), { from: 'user' })
    return code
  } catch (error) {
    return report(error, output)
  }
}

/** Where flannel's flags are taken they may be written as Go writes them. */
function flannelWords(argv: readonly string[]): string[] {
  const commands = argv[0] === 'run' ? 1 : argv[0] === 'config' && argv[1] === 'show' ? 2 : argv.length
  return [...argv.slice(0, commands), ...goWords(argv.slice(commands))]
}

function report(error: unknown, output: Output): number {
  // Commander has already written its line; asking for help or the version is no failure.
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage
  if (error instanceof FlanneletteError) {
    const { code, oneLine: sentence, remedy } = error
    tell({ code, sentence, remedy }, output)
    return error.exitCode
  }
  const remedy = 'please report it together with the command'
  tell({ code: 'unexpected', sentence: `unexpected: ${(error as Error).message}; ${remedy}`, remedy }, output)
  return EXIT.failed
}

function tell(failure: Failure, { err, form = 'plain' }: Output): void {
  err(failureLine(failure, form, systemClock().wallMs()))
}

/** Commander's own complaint in the shape of ours: `error: unknown option '--x'` gets our name and a way out. */
function mistake(text: string, command: Command): Failure {
  const words = [command.name()]
  for (let parent = command.parent; parent !== null; parent = parent.parent) words.unshift(parent.name())
  const remedy = `see ${words.join(' ')} --help`
  return { code: 'usage', sentence: `${text.replace(/^error: /, '').replace(/[.\s]+$/, '')}; ${remedy}`, remedy }
}

function withSubcommands(command: Command): Command[] {
  return [command, ...command.commands.flatMap(withSubcommands)]
}

/** Runs the command line of this process to its end; what it was building is cleaned up whatever happens. */
export async function start(): Promise<void> {
  /** Set when the command was ended from outside: the exit code, whatever the command makes of it. */
  let ended: number | null = null
  const end = (code: number, reason: unknown) => {
    if (ended !== null) return
    ended = code
    process.exitCode = code
    if (!interrupt(reason)) process.exit(code)
  }
  // systemd takes a priority in front of a line: a start that failed is to be found among the errors.
  const reader = readerOf(process.stderr, process.env.JOURNAL_STREAM)
  const priority = reader === 'journal' ? '<3>' : ''
  const argv = process.argv.slice(2)
  const output: Output = {
    form: failureFormOf(argv, process.env, reader),
    out: (text) => process.stdout.write(text),
    // What a command says of having been ended is not worth a second line.
    err: (text) => void (ended === null && process.stderr.write(priority + text)),
  }
  for (const [name, stream] of [
    ['output', process.stdout],
    ['error', process.stderr],
  ] as const) {
    stream.on('error', (error) => {
      const loss = outputLoss(name, error)
      if (loss.kind === 'ignored') return
      const reason = new FlanneletteError('interrupted', loss.kind === 'failed' ? loss.line : 'its output was closed')
      if (loss.kind === 'failed') report(reason, output)
      end(loss.kind === 'failed' ? EXIT.failed : EXIT.interrupted, reason)
    })
  }
  for (const event of ['uncaughtException', 'unhandledRejection'] as const) {
    process.on(event, (error: unknown) => end(report(error, output), error))
  }
  const code = await main(argv, output)
  // Whether the last words found a taker is known a turn later.
  await new Promise((resolve) => setImmediate(resolve))
  // A daemon may still have timers and a worker: it ends here and now. Others end when their work does.
  if (ended !== null) process.exit(ended)
  if (code !== undefined) process.exit(code)
}

const script = process.argv[1]
if (script !== undefined && realpathSync(script) === fileURLToPath(import.meta.url)) await start()
