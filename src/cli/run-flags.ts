// The flags of `flannelette run` as commander knows them, made of the flag table; `config show` has the same ones.
import { type Command, Option } from 'commander'
import { FLAGS, type Flag, variableOf } from '../config/flag-table.ts'
import type { GivenFlags } from '../config/flag-values.ts'

/** Puts every flag of the table on a command. */
export function addRunFlags(command: Command): Command {
  for (const flag of FLAGS) command.addOption(optionOf(flag))
  return command
}

/** The words that a command line gave, by flag. */
export function givenFlags(command: Command): GivenFlags {
  const given = new Map<string, readonly string[]>()
  for (const flag of FLAGS) {
    const name = optionOf(flag).attributeName()
    if (command.getOptionValueSource(name) === 'cli') given.set(flag.name, command.getOptionValue(name) as string[])
  }
  return given
}

/** Values are only collected here; src/config/flag-values.ts judges them whatever they come from. */
function optionOf(flag: Flag): Option {
  const option = new Option(wordsOf(flag), flag.about).argParser((text: string, before: unknown) =>
    Array.isArray(before) ? [...before, text] : [text],
  )
  if (flag.kind === 'choice') option.argChoices = [...flag.choices]
  if (flag.kind === 'boolean' || flag.name === 'v') option.preset(flag.name === 'v' ? '1' : 'true')
  return flag.default === '' ? option : option.default(flag.default)
}

function wordsOf({ name, kind, value }: Flag): string {
  if (name === 'v') return `-v, --v [${value}]`
  return kind === 'boolean' ? `--${name} [${value}]` : `--${name} <${value}>`
}

/** For the help: how flags and variables hang together. */
export const FLAG_NOTES = `
Flags may be written as flannel's are: -iface=eth1, --iface eth1, --ip-masq, --ip-masq=false.
A flag that is not given is read from ${variableOf('FLANNELLETTE', 'NAME')}, those of flannel also from ${variableOf('FLANNELD', 'NAME')}:
${variableOf('FLANNELD', 'etcd-endpoints')} for --etcd-endpoints.
`
