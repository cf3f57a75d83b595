// `flannelette docker-opts`: what mk-docker-opts.sh of flannel does, with its flags.
import { readFileSync, realpathSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Command } from 'commander'
import { writeFileAtomically } from '../atomic-file.ts'
import { dockerOptions, routeToSubnet } from '../config/docker-options.ts'
import { DEFAULT_SUBNET_FILE } from '../config/subnet-file.ts'
import { FlanneletteError } from '../errors.ts'
import { type RouteInfo, showJson } from '../host/ip.ts'
import { labAround } from '../lab/inside.ts'
import { isDirectory } from '../make-directory.ts'

const EXAMPLES = `Examples:
  flannelette docker-opts                          read ${DEFAULT_SUBNET_FILE}, write /run/docker_opts.env
  flannelette docker-opts -c -k DOCKER_NETWORK_OPTIONS -d /run/docker-network
`

interface Flags {
  readonly f: string
  readonly d: string
  readonly i?: true
  readonly c?: true
  readonly m?: true
  readonly k: string
}

export function dockerOptsCommand(): Command {
  return new Command('docker-opts')
    .description('turn subnet.env into options of a Docker daemon')
    .addHelpText('before', EXAMPLES)
    .option('-f <file>', "this node's subnet.env; may be missing", DEFAULT_SUBNET_FILE)
    .option('-d <file>', 'file to write; its directory has to be there', '/run/docker_opts.env')
    .option('-i', 'write a variable for each option (default: both forms)')
    .option('-c', 'write one variable with all options')
    .option('-m', 'leave --ip-masq out')
    .option('-k <name>', 'name of the variable with all options', 'DOCKER_OPTS')
    .action((flags: Flags, command: Command) => writeDockerOptions({ ...flags, ...filesOfLab(command) }))
}

/** On a host of a lab the usual files are of the machine, which is another node: there they are the lab's. */
function filesOfLab(command: Command): Partial<Pick<Flags, 'f' | 'd'>> {
  const around = labAround()
  if (around === null) return {}
  const isTold = (flag: keyof Flags) => command.getOptionValueSource(flag) !== 'default'
  return {
    ...(isTold('f') ? {} : { f: around.subnetFile }),
    ...(isTold('d') ? {} : { d: join(dirname(around.subnetFile), 'docker_opts.env') }),
  }
}

async function writeDockerOptions({ f, d, i, c, m, k }: Flags): Promise<void> {
  if (!/^[A-Za-z_]\w*$/.test(k)) {
    throw new FlanneletteError('usage', `-k ${k} is no name of a variable`, { remedy: 'give one such as DOCKER_OPTS' })
  }
  const subnetFile = read(f)
  const both = i === undefined && c === undefined
  const wanted = { individual: i ?? both, combined: c ?? both, key: k, ipMasq: m === undefined }
  write(d, dockerOptions(subnetFile, process.env, wanted))
  await refuseForeignRoute(routeToSubnet(subnetFile))
}

function read(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw new FlanneletteError('usage', `${path} cannot be read: ${(error as Error).message}`, { cause: error })
  }
}

/** As a shell's redirection: no directory is made for a name that was mistyped, and what a link leads to is written. */
function write(path: string, text: string): void {
  try {
    const directory = dirname(path)
    if (!isDirectory(directory)) throw new Error(`${directory} is no directory`)
    const there = statSync(path, { throwIfNoEntry: false })
    // A terminal, a pipe, /dev/null: a new file in their place would take them away from everybody.
    if (there !== undefined && !there.isFile()) writeFileSync(path, text)
    else writeFileAtomically(there === undefined ? path : realpathSync(path), text, { mode: 0o644, durable: false })
  } catch (cause) {
    const remedy = 'choose another file with -d'
    throw new FlanneletteError('usage', `${path} cannot be written: ${(cause as Error).message}`, { remedy, cause })
  }
}

/** A node that still has a way to this subnet through another one would not reach its own pods. */
async function refuseForeignRoute(subnet: string | null): Promise<void> {
  if (subnet === null) return
  const routes = await showJson<RouteInfo>('ip', ['-4', 'route', 'show'])
  const route = routes.find(({ dst, gateway }) => dst === subnet && gateway !== undefined)
  if (route === undefined) return
  throw new FlanneletteError('network-overlap', `there is a route to ${subnet} via ${route.gateway} already`, {
    remedy: `remove it with "ip route delete ${subnet} via ${route.gateway}"`,
  })
}
