// `flannelette run`: flags and environment to options.
import { Command } from 'commander'
import { type Environment, FlagValues } from '../config/flag-values.ts'
import { type RunOptions, runOptions } from '../config/options.ts'
import { surviveLostOutput } from './interruption.ts'
import { addRunFlags, FLAG_NOTES, givenFlags } from './run-flags.ts'

const EXAMPLES = `Examples:
  flannelette run --etcd-endpoints http://192.0.2.10:2379 --iface eth1 --ip-masq
  flannelette run --store file:/run/flannelette/store --iface eth1 --log-format json
  flannelette run --store file:/run/flannelette/store --dataplane kernel --on-exit remove
`

const EXITS = `
Exit codes:
  0  stopped by SIGTERM or SIGINT (device, routes, rules and subnet.env stay unless --on-exit=remove)
  1  the node could not start, or its lease went to another host
  2  wrong usage, environment or network config
  5  not permitted: a capability or a device is missing
`

/** The command; `run` does the work and gives the exit code, `exit` receives it. */
export function runCommand(
  run: (options: RunOptions) => Promise<number>,
  exit: (code: number) => void,
  environment: Environment = process.env,
): Command {
  const command = new Command('run')
    .description('run this node: take a lease, forward pod packets to the other nodes')
    .addHelpText('before', EXAMPLES)
    .addHelpText('after', FLAG_NOTES + EXITS)
  return addRunFlags(command).action(async () => {
    const options = runOptions(new FlagValues(givenFlags(command), environment))
    surviveLostOutput()
    exit(await run(options))
  })
}
