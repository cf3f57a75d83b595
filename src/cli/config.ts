// `flannelette config`: what a network config means, and what this node's flags and variables come to.
import { readFileSync } from 'node:fs'
import { Command, Option } from 'commander'
import { type ConfigReport, checkNetworkConfig } from '../config/check-network-config.ts'
import { type Environment, FlagValues, shownValues } from '../config/flag-values.ts'
import { runOptions } from '../config/options.ts'
import { EXIT, FlanneletteError } from '../errors.ts'
import { addRunFlags, FLAG_NOTES, givenFlags } from './run-flags.ts'
import { shown, table, terminalOf } from './table.ts'

/** The command with its verbs; `write` takes what goes to standard output. */
export function configCommand(
  write: (text: string) => void,
  exit: (code: number) => void,
  environment: Environment = process.env,
): Command {
  return new Command('config')
    .description('look at configuration without running anything')
    .addCommand(checkCommand(write, exit))
    .addCommand(showCommand(write, environment))
}

const CHECK_EXAMPLES = `Examples:
  flannelette config check /etc/kube-flannel/net-conf.json
  etcdctl get --print-value-only /coreos.com/network/config | flannelette config check -
`

const CHECK_EXITS = `
Exit codes: 0 good, warnings included; 2 a node would not start with it
`

function checkCommand(write: (text: string) => void, exit: (code: number) => void): Command {
  return new Command('check')
    .description('say what a network config means, and everything that is wrong with it')
    .argument('<file>', 'the config as JSON; - for standard input')
    .addOption(outputOption())
    .addHelpText('before', CHECK_EXAMPLES)
    .addHelpText('after', CHECK_EXITS)
    .action((file: string, { output }: { output: string }) => {
      const { findings, derived } = checkNetworkConfig(readText(file))
      const name = file === '-' ? 'standard input' : file
      const json = () =>
        `${JSON.stringify({ version: 1, file: name, valid: derived !== null, findings, derived }, null, 2)}\n`
      write(output === 'json' ? json() : shown(checkText(name, { findings, derived }), terminalOf(process.stdout)))
      exit(derived === null ? EXIT.usage : EXIT.ok)
    })
}

function outputOption(): Option {
  return new Option('-o, --output <form>', 'form of the result').choices(['text', 'json']).default('text')
}

function readText(file: string): string {
  try {
    return readFileSync(file === '-' ? 0 : file, 'utf8')
  } catch (cause) {
    throw new FlanneletteError('usage', `${file} cannot be read: ${(cause as Error).message}`, { cause })
  }
}

function checkText(name: string, { findings, derived }: ConfigReport): string {
  const lines = findings.map(({ severity, line, column, message, remedy }) => {
    return `${name}:${line}:${column}: ${severity}: ${message}${remedy === '' ? '' : `; ${remedy}`}\n`
  })
  const meaning = derived === null ? '' : table(['NAME', 'VALUE'], Object.entries(derived))
  return lines.join('') + meaning
}

const SHOW_EXAMPLES = `Examples:
  flannelette config show --origin
  flannelette config show --origin -iface=eth1 --ip-masq
`

function showCommand(write: (text: string) => void, environment: Environment): Command {
  const command = new Command('show')
    .description('print the value of every flag of `run`; it takes the same flags and reads the same environment')
    .option('--origin', 'say where each value comes from', false)
    .addOption(outputOption())
    .addHelpText('before', SHOW_EXAMPLES)
    .addHelpText('after', FLAG_NOTES)
  return addRunFlags(command).action(({ origin, output }: { origin: boolean; output: string }) => {
    const values = new FlagValues(givenFlags(command), environment)
    runOptions(values)
    write(output === 'json' ? asJson(values) : shown(asTable(values, origin), terminalOf(process.stdout)))
  })
}

function asTable({ settings, notices }: FlagValues, withOrigin: boolean): string {
  const rows = settings.map((setting) => {
    const cells = [setting.flag.name, shownValues(setting).join(' ') || '-']
    return withOrigin ? [...cells, setting.source] : cells
  })
  const heading = withOrigin ? ['FLAG', 'VALUE', 'ORIGIN'] : ['FLAG', 'VALUE']
  return table(heading, rows) + notices.map((notice) => `note: ${notice}\n`).join('')
}

function asJson({ settings, notices }: FlagValues): string {
  const flags = settings.map((setting) => {
    const { flag, origin, source } = setting
    const values = shownValues(setting)
    return { name: flag.name, value: flag.kind === 'list' ? values : (values[0] ?? ''), origin, source }
  })
  return `${JSON.stringify({ version: 1, flags, notices }, null, 2)}\n`
}
