// `flannelette config`: what a network config means, and what this node's flags and variables come to.
import { Command, Option } from 'commander'
import { type Environment, FlagValues, shownValue } from '../config/flag-values.ts'
import { runOptions } from '../config/options.ts'
import { addRunFlags, FLAG_NOTES, givenFlags } from './run-flags.ts'
import { table } from './table.ts'

/** The command with its verbs; `write` takes what goes to standard output. */
export function configCommand(write: (text: string) => void, environment: Environment = process.env): Command {
  return new Command('config')
    .description('look at configuration without running anything')
    .addCommand(showCommand(write, environment))
}

const SHOW_EXAMPLES = `Examples:
  flannelette config show --origin
  flannelette config show --origin -iface=eth1 --ip-masq
`

function showCommand(write: (text: string) => void, environment: Environment): Command {
  const command = new Command('show')
    .description('print the value of every flag of `run`; it takes the same flags and reads the same environment')
    .option('--origin', 'say where each value comes from', false)
    .addOption(new Option('-o, --output <form>', 'form of the result').choices(['text', 'json']).default('text'))
    .addHelpText('before', SHOW_EXAMPLES)
    .addHelpText('after', FLAG_NOTES)
  return addRunFlags(command).action(({ origin, output }: { origin: boolean; output: string }) => {
    const values = new FlagValues(givenFlags(command), environment)
    runOptions(values)
    write(output === 'json' ? asJson(values) : asTable(values, origin))
  })
}

function asTable({ settings, notices }: FlagValues, withOrigin: boolean): string {
  const rows = settings.map((setting) => {
    const cells = [setting.flag.name, shownValue(setting) || '-']
    return withOrigin ? [...cells, setting.source] : cells
  })
  const heading = withOrigin ? ['FLAG', 'VALUE', 'ORIGIN'] : ['FLAG', 'VALUE']
  return table(heading, rows) + notices.map((notice) => `note: ${notice}\n`).join('')
}

function asJson({ settings, notices }: FlagValues): string {
  const flags = settings.map((setting) => {
    const { flag, origin, source } = setting
    return { name: flag.name, value: shownValue(setting), origin, source }
  })
  return `${JSON.stringify({ version: 1, flags, notices }, null, 2)}\n`
}
