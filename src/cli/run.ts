// `flannelette run`: flags to options.
import { Command, Option } from 'commander'
import {
  collectSourceAllow,
  DRIVERS,
  type Endpoint,
  flagsWithoutEffect,
  parseHealthzIp,
  parseHealthzPort,
  parseMetricsAddress,
  parsePublicIp,
  parseRenewMargin,
  parseSourcePorts,
  parseWorkers,
  type RunOptions,
  refuseWorkersOf,
} from '../config/options.ts'
import { DEFAULT_SUBNET_FILE } from '../config/subnet-file.ts'
import { DEFAULT_STATE_DIRECTORY } from '../daemon/state-directory.ts'
import { FlanneletteError } from '../errors.ts'
import { surviveLostOutput } from './interruption.ts'

const EXAMPLES = `Examples:
  flannelette run --store file:/run/flannelette/store
  flannelette run --store file:/run/flannelette/store --iface eth1 --log-format json
  flannelette run --store file:/run/flannelette/store --dataplane kernel --on-exit remove
`

const EXITS = `
Exit codes:
  0  stopped by SIGTERM or SIGINT (device, routes and subnet.env stay unless --on-exit=remove)
  1  the node could not start, or its lease went to another host
  2  wrong usage or network config
  5  not permitted: a capability or a device is missing
`

interface Flags {
  store?: string
  iface?: string
  publicIp?: number
  subnetFile: string
  stateDir: string
  subnetLeaseRenewMargin: number
  dataplane: RunOptions['dataplane']
  driver: RunOptions['driver']
  udpGso: RunOptions['udpGso']
  tunOffload: 'on' | 'off'
  sourceCheck: RunOptions['sourceCheck']
  sourceAllow: RunOptions['sourceAllow']
  workers: number
  sourcePorts: number
  udpChecksum: 'on' | 'off'
  onExit: RunOptions['onExit']
  healthzIp: string
  healthzPort: number
  metricsAddress?: Endpoint
  metricsPeers: 'on' | 'off'
  apiSocket?: string
  logFormat: RunOptions['logFormat']
  verbose: boolean
}

/** The command; `run` does the work and gives the exit code, `exit` receives it. */
export function runCommand(run: (options: RunOptions) => Promise<number>, exit: (code: number) => void): Command {
  return new Command('run')
    .description('run this node: take a lease, forward pod packets to the other nodes')
    .addHelpText('before', EXAMPLES)
    .addHelpText('after', EXITS)
    .option('--store <store>', 'where leases live: file:DIR')
    .option('--iface <name|address>', 'underlay interface (default: that of the default route)')
    .option('--public-ip <address>', 'address that peers send to (default: that of the interface)', parsePublicIp)
    .option('--subnet-file <path>', "this node's subnet and MTU, for CNI plugins", DEFAULT_SUBNET_FILE)
    .option(
      '--state-dir <path>',
      'what the node remembers: MAC, lease, last peers, status.json',
      DEFAULT_STATE_DIRECTORY,
    )
    .option('--subnet-lease-renew-margin <minutes>', 'renew so long before expiry (1-1439)', parseRenewMargin, 60)
    .addOption(choice('--dataplane <kind>', 'who moves packets', ['userspace', 'kernel']))
    .addOption(choice('--driver <kind>', 'how the userspace dataplane moves them', DRIVERS))
    .addOption(choice('--udp-gso <mode>', 'trains of datagrams sent as one', ['auto', 'on', 'off']))
    .addOption(choice('--tun-offload <mode>', 'super-packets and open checksums on the device', ['on', 'off']))
    .addOption(choice('--source-check <mode>', 'whom to accept packets from', ['strict', 'peer', 'off']))
    .option(
      '--source-allow <cidr>',
      'inner sources that any peer may forward for others (repeatable)',
      collectSourceAllow,
      [],
    )
    .option('--workers <n>', 'threads that move packets, each with a queue of the device (1-16)', parseWorkers, 1)
    .option(
      '--source-ports <n>',
      'UDP ports that flows are spread over; 1: the service port alone (1-256); more: all local ports with --driver raw',
      parseSourcePorts,
      16,
    )
    .addOption(choice('--udp-checksum <mode>', 'outer checksum of the kernel dataplane', ['on', 'off']))
    .addOption(choice('--on-exit <mode>', 'what becomes of device, routes and subnet.env', ['keep', 'remove']))
    .option('--healthz-ip <address>', 'where /healthz and /readyz are answered', parseHealthzIp, '0.0.0.0')
    .option('--healthz-port <port>', 'their TCP port; 0: nowhere', parseHealthzPort, 0)
    .option(
      '--metrics-address <address:port>',
      'where /metrics is answered, and health too; :PORT is on loopback (default: nowhere)',
      parseMetricsAddress,
    )
    .addOption(choice('--metrics-peers <mode>', 'a metric for each peer', ['on', 'off']))
    .option('--api-socket <path>', 'local socket for other commands (default: api.sock in the state directory)')
    .addOption(choice('--log-format <format>', 'text, json; auto: text on a terminal', ['auto', 'text', 'json']))
    .option('-v, --verbose', 'log more', false)
    .action(async (flags: Flags, command: Command) => {
      const options = toOptions(flags, (flag) => wasGiven(command, flag))
      surviveLostOutput()
      exit(await run(options))
    })
}

/** The first choice is the default. */
function choice(flags: string, about: string, choices: [string, ...string[]]): Option {
  return new Option(flags, about).choices(choices).default(choices[0])
}

function wasGiven(command: Command, flag: string): boolean {
  const option = command.options.find(({ long }) => long === flag)
  return option !== undefined && command.getOptionValueSource(option.attributeName()) === 'cli'
}

function toOptions(flags: Flags, given: (flag: string) => boolean): RunOptions {
  // Checked here and not by commander, which would complain of it before a misspelt flag.
  if (flags.store === undefined) {
    throw new FlanneletteError('usage', '--store is missing', {
      remedy: 'say where leases live: --store file:DIRECTORY',
    })
  }
  refuseWorkersOf(flags.driver, flags.workers)
  return {
    store: flags.store,
    ...(flags.iface === undefined ? {} : { iface: flags.iface }),
    ...(flags.publicIp === undefined ? {} : { publicIp: flags.publicIp }),
    subnetFile: flags.subnetFile,
    stateDirectory: flags.stateDir,
    renewMarginMinutes: flags.subnetLeaseRenewMargin,
    dataplane: flags.dataplane,
    driver: flags.driver,
    udpGso: flags.udpGso,
    tunOffload: flags.tunOffload === 'on',
    sourceCheck: flags.sourceCheck,
    sourceAllow: flags.sourceAllow,
    workers: flags.workers,
    sourcePorts: flags.sourcePorts,
    udpChecksum: flags.udpChecksum === 'on',
    onExit: flags.onExit,
    healthzIp: flags.healthzIp,
    healthzPort: flags.healthzPort,
    ...(flags.metricsAddress === undefined ? {} : { metricsAddress: flags.metricsAddress }),
    metricsPeers: flags.metricsPeers === 'on',
    ...(flags.apiSocket === undefined ? {} : { apiSocket: flags.apiSocket }),
    logFormat: flags.logFormat,
    verbose: flags.verbose,
    notices: flagsWithoutEffect(flags.dataplane, given),
  }
}
