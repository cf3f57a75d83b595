// `flannelette cleanup`: takes everything of ours off this host, after showing what that is.
import { createInterface } from 'node:readline/promises'
import { Command } from 'commander'
import { DEFAULT_STATE_DIRECTORY } from '../config/flag-table.ts'
import { DEFAULT_SUBNET_FILE } from '../config/subnet-file.ts'
import { counted } from '../counted.ts'
import { type CleanupPlan, type CleanupStep, planCleanup, runCleanup, stepText } from '../daemon/cleanup.ts'
import { FlanneletteError } from '../errors.ts'
import { labAround } from '../lab/inside.ts'

const EXAMPLES = `Examples:
  flannelette cleanup --dry-run       what would be done, as commands for a shell
  flannelette cleanup --yes           device, routes, firewall rules, subnet.env
  flannelette cleanup --yes --state   and what the node remembers: its MAC and its lease
`

const EXITS = `
Exit codes: 0 done, also when nothing was there; 1 failed, or a daemon runs here; 2 wrong usage; 5 not permitted
`

interface Flags {
  readonly yes?: boolean
  readonly dryRun?: boolean
  readonly state?: boolean
  readonly subnetFile: string
  readonly dockerOptsFile?: string
  readonly stateDir: string
}

export function cleanupCommand(): Command {
  return new Command('cleanup')
    .description('take everything of flannelette off this host; the lease in the store stays until it expires')
    .addHelpText('before', EXAMPLES)
    .addHelpText('after', EXITS)
    .option('-y, --yes', 'do it without asking')
    .option('-n, --dry-run', 'only print the commands')
    .option('--state', 'also forget MAC, lease and peers: the node may get another subnet next time')
    .option('--subnet-file <path>', 'removed if it is of this node', DEFAULT_SUBNET_FILE)
    .option('--docker-opts-file <path>', 'removed with it if it was made from it')
    .option('--state-dir <path>', 'what the node remembers', DEFAULT_STATE_DIRECTORY)
    .action(async (flags: Flags, command: Command) => {
      const { dockerOptsFile, state = false } = flags
      // On a host of a lab the usual files are of the machine, which is another node: there they are the lab's.
      const around = labAround()
      const isUsual = (flag: keyof Flags) => command.getOptionValueSource(flag) === 'default'
      const stateDirectory = (isUsual('stateDir') ? around?.stateDirectory : null) ?? flags.stateDir
      const subnetFile = (isUsual('subnetFile') ? around?.subnetFile : null) ?? flags.subnetFile
      const files = dockerOptsFile === undefined ? { subnetFile } : { subnetFile, dockerOptsFile }
      const options = { ...files, stateDirectory, state }
      const plan = await planCleanup(options)
      for (const sentence of plan.kept) process.stderr.write(`${sentence}\n`)
      if (flags.dryRun === true)
        return void process.stdout.write(plan.steps.map((step) => `${stepText(step)}\n`).join(''))
      if (plan.steps.length === 0) return void process.stderr.write('nothing of flannelette is on this host\n')
      if (flags.yes !== true && !(await agreed(plan))) return
      const left = await runCleanup(options, plan)
      const removed = counted(plan.steps.length - left.length, 'thing')
      process.stderr.write(`removed: ${removed} of flannelette\n${left.map(leftText).join('')}`)
    })
}

function leftText(step: CleanupStep): string {
  return `left out, since the host has changed meanwhile: ${stepText(step)}\n`
}

/** @throws FlanneletteError `usage` where nobody can be asked */
async function agreed({ steps }: CleanupPlan): Promise<boolean> {
  if (!process.stdin.isTTY) {
    throw new FlanneletteError('usage', 'cleanup removes things and nobody is there to be asked', {
      remedy: 'give --yes, or --dry-run to see what it would do',
    })
  }
  process.stderr.write(steps.map((step) => `  ${stepText(step)}\n`).join(''))
  const prompt = createInterface({ input: process.stdin, output: process.stderr })
  try {
    return /^y(es)?$/i.test((await prompt.question('Run these commands? [y/N] ')).trim())
  } finally {
    prompt.close()
  }
}
