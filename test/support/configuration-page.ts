// Makes docs/configuration.md: prose from here, every flag from the command line's own definitions, so that the page
// cannot fall behind.
import type { Command, Option } from 'commander'
import { cleanupCommand } from '../../src/cli/cleanup.ts'
import { configCommand } from '../../src/cli/config.ts'
import { dockerOptsCommand } from '../../src/cli/docker-opts.ts'
import { doctorCommand } from '../../src/cli/doctor.ts'
import { labCommand } from '../../src/cli/lab.ts'
import { pingNodeCommand } from '../../src/cli/ping-node.ts'
import { runCommand } from '../../src/cli/run.ts'
import { statusCommand } from '../../src/cli/status.ts'
import { FLAGS } from '../../src/config/flag-table.ts'
import { EXIT } from '../../src/errors.ts'

const cell = (text: string): string => text.replaceAll('|', '\\|')

function defaultOf({ defaultValue, defaultValueDescription }: Option): string {
  if (defaultValue === undefined || defaultValue === false) return ''
  return Array.isArray(defaultValue) && defaultValue.length === 0
    ? ''
    : `\`${defaultValueDescription ?? String(defaultValue)}\``
}

function flagRow(option: Option): string {
  const choices = option.argChoices === undefined ? '' : ` (${option.argChoices.map((one) => `\`${one}\``).join(', ')})`
  return `| \`${cell(option.flags)}\` | ${defaultOf(option)} | ${cell(option.description)}${choices} |`
}

const isRunFlag = ({ long }: Option): boolean => FLAGS.some(({ name }) => long === `--${name}`)

/** Those of `run` have a table of their own, also for a command that takes all of them. */
function ownFlags({ options }: Command): readonly Option[] {
  const takesAll = options.filter(isRunFlag).length === FLAGS.length
  return takesAll ? options.filter((option) => !isRunFlag(option)) : options
}

/** The flags of `run`, with what they are called in the environment. */
function runFlags(run: Command): string[] {
  const rows = FLAGS.map(({ name, from }) => {
    const option = run.options.find(({ long }) => long === `--${name}`)!
    return `${flagRow(option)} ${from === 'flannel' ? "flannel's" : ''} |`
  })
  return ['| flag | default | about | |', '|---|---|---|---|', ...rows, '']
}

const RUN = `Flags are written as flannel's are: \`-iface=eth1\`, \`--iface eth1\`, \`--ip-masq\`, \`--ip-masq=false\`, \`-v=4\`. A flag that is not given
is read from \`FLANNELLETTE_NAME\`, those of flannel also from \`FLANNELD_NAME\` (\`FLANNELD_ETCD_ENDPOINTS\` for \`--etcd-endpoints\`); with both
set, ours counts and a line in the log says so. An empty variable is as good as none. A variable of a repeatable flag is one value.
A bad value ends the start with exit code 2, whether it comes from the command line or from the environment.
\`flannelette config show --origin\` prints what all this comes to.

The underlay interface is the first that will do of \`--iface\`, \`--iface-regex\` and \`--iface-can-reach\`, in this order; without any of
them that which has \`--public-ip\`; without that one, that of the default route with the lowest metric. A pattern is searched
for in the addresses of all interfaces, and in their names only if no address matches. Of several addresses global goes before link
scope, permanent before leased. The choice and what was passed over are logged.

When the address of the chosen interface changes, the choice is made again by the same rule after five quiet seconds: the node keeps
subnet and device, and peers learn of the new address by its lease. With a \`--public-ip\` that the interface has lost, nothing is changed
and the node is \`degraded\`.
`

/** The flags of a command, and of the commands below it. */
function flagTables(command: Command, prefix: string): string[] {
  const name = `${prefix} ${command.name()}`
  const words = command.registeredArguments.map((argument) =>
    argument.required ? `<${argument.name()}>` : `[${argument.name()}]`,
  )
  const heading = [`### \`${[name, ...words].join(' ')}\``, '', `${command.description()}.`, '']
  const rows = ownFlags(command).map(flagRow)
  const table = rows.length === 0 ? [] : ['| flag | default | about |', '|---|---|---|', ...rows, '']
  return [...heading, ...table, ...command.commands.flatMap((one) => flagTables(one, name))]
}

const EXIT_WORDS: Record<keyof typeof EXIT, string> = {
  ok: 'done; for `run`: stopped by a signal',
  failed: 'negative result, or the start failed; for `run` also: the lease went to another host',
  usage: 'wrong usage or configuration',
  timeout: 'time limit reached without a result',
  unreachable: 'no daemon answers',
  notPermitted: 'not permitted; the line names the capability',
  interrupted: 'Ctrl-C, or the reader of the output is gone',
}

const BEFORE = `# Configuration

Flags, the network config, and the files that a node reads and writes.

## Network config

One JSON object per cluster, by flannel's rules: keys are matched without case, unknown keys are ignored, a CIDR is masked.
In etcd it is the key \`PREFIX/config\` (\`--etcd-prefix\`), with \`--store file:DIR\` the file \`DIR/config\`. It is read once, at
start, which waits for it; a mistake is reported with its place.
\`flannelette config check FILE\` finds all of them, and says what the config comes to.

| key | default | about |
|---|---|---|
| \`Network\` | required unless \`EnableIPv4\` is false | the pod network, IPv4 CIDR of unicast addresses; it must cover neither the underlay nor a \`--public-ip\`, and no route of others may be for exactly it |
| \`SubnetLen\` | 24, or prefix + 2 for networks smaller than /22 | prefix length of each node's subnet, at most 30 |
| \`SubnetMin\`, \`SubnetMax\` | second and last subnet of \`Network\` | first and last subnet that may be given out |
| \`EnableIPv4\` | true | false with \`EnableIPv6\`: pods and hosts have IPv6 alone |
| \`EnableIPv6\` | false | pods have IPv6 addresses as well; every backend but \`udp\`. With \`vxlan\` hosts have a second tunnel between their IPv6 addresses, by the device \`flannel-v6.VNI\` |
| \`IPv6Network\` | required with \`EnableIPv6\` | the pod network of IPv6, a CIDR of unicast addresses |
| \`IPv6SubnetLen\` | 64, or prefix + 2 for networks smaller than /62 | prefix length of each node's IPv6 subnet, at most 126 |
| \`IPv6SubnetMin\`, \`IPv6SubnetMax\` | second and last subnet of \`IPv6Network\` | first and last IPv6 subnet that may be given out |
| \`EnableNFTables\` | false | masquerade and forward rules in nftables form, in place of iptables ([differences](decisions/0017-rules-and-routes-on-the-host.md)) |
| \`Backend.Type\` | required in \`Backend\`; without \`Backend\` it is \`udp\`, as flannel has it | \`vxlan\`; \`host-gw\` (routes, no keys); \`udp\` (IPv4 inside plain UDP; of the keys below it has \`Port\` only); \`alloc\` (a lease and nothing else, no keys); \`extension\` (commands). What each is for: [backends](backends.md) |
| \`Backend.VNI\` | 1 | 1 to 16777215; also the number in the device's name, in hex behind an \`x\` where that would be too long |
| \`Backend.Port\` | 8472; \`udp\`: 8285 | UDP port, equal on all nodes |
| \`Backend.MTU\` | the interface's | MTU of the **underlay**, at least 626, with IPv6 1350 (1330 with \`IPv6OverIPv4\`); the overlay gets 50 bytes less, over IPv6 70. The interface's is followed while the daemon runs; one that is given here is not |
| \`Backend.IPv6OverIPv4\` | false | our own key: with \`EnableIPv6\` there is no second tunnel, IPv6 packets of pods ride through the VXLAN tunnels between IPv4 addresses, by the same device, MAC and port. The overlay then needs an MTU of 1280. All nodes must be ours ([why](decisions/0010-ipv6-rides-over-ipv4.md)) |
| \`Backend.PreStartupCommand\`, \`PostStartupCommand\`, \`SubnetAddCommand\`, \`SubnetRemoveCommand\` | none | \`extension\` only: [what runs when](backends.md#extension) |
| \`Backend.Shell\` | false | \`extension\` only, our own key: \`/bin/sh -c\` reads the commands |
| \`Backend.GBP\` | false | the marks of packets (group policy) cross the tunnel; equal on all nodes, which need \`--dataplane kernel\` or \`auto\`: the userspace dataplane refuses to start with it |
| \`Backend.Learning\` | false | the kernel dataplane's device learns MACs; of no use, since leases name them all, and without effect on the userspace dataplane |
| \`Backend.DirectRouting\` | false | peers that are neighbours on the underlay's link are reached by routes, past the tunnel ([how](decisions/0028-routes-to-peers.md)) |

\`\`\`json
{ "Network": "10.244.0.0/16", "Backend": { "Type": "vxlan", "VNI": 1, "Port": 8472 } }
\`\`\`

With IPv6 beside IPv4, and alone:

\`\`\`json
{
  "Network": "10.244.0.0/16",
  "EnableIPv6": true, "IPv6Network": "fd00:10:244::/48",
  "Backend": { "Type": "vxlan" }
}
\`\`\`

\`\`\`json
{
  "EnableIPv4": false,
  "EnableIPv6": true, "IPv6Network": "fd00:10:244::/48",
  "Backend": { "Type": "vxlan" }
}
\`\`\`

Hosts need IPv6 addresses that reach each other, not only link-local ones, with both families on one interface. The IPv6 device needs an
MTU of 1280, hence the interface one of 1350; \`FLANNEL_MTU\` is that of the IPv4 device where there is one
([why](decisions/0026-tunnels-between-ipv6-addresses.md)).

Turning IPv6 on or off takes a restart of each node; nodes keep their IPv4 subnets. Forwarding of IPv6 on the host
(\`net.ipv6.conf.all.forwarding\`) is the CNI plugin's to switch on, as with flannel.

## Files

| file | what |
|---|---|
| \`/run/flannel/subnet.env\` (\`--subnet-file\`) | \`FLANNEL_NETWORK\`, \`FLANNEL_SUBNET\`, \`FLANNEL_MTU\`, \`FLANNEL_IPMASQ\`, with IPv6 also \`FLANNEL_IPV6_NETWORK\` and \`FLANNEL_IPV6_SUBNET\`: for CNI plugins and container engines. Written when the node forwards, and again when the MTU changes; one that tells of another subnet is removed first |
| \`/var/lib/flannelette/\` (\`--state-dir\`) | MAC of the VTEP, own lease, last peers, those that commands of an \`extension\` were told of; \`status.json\`, rewritten when it changes; \`api.sock\`, the [local socket](operations.md#local-socket) |
| \`PREFIX/config\`, \`PREFIX/subnets/KEY\` in etcd | network config and leases, byte for byte as flannel writes them; a lease hangs on an etcd lease of 24 h, one without such is a reservation, which never expires |
| \`DIR/config\`, \`DIR/subnets/KEY\` (\`--store file:DIR\`) | network config and leases; a lease file holds flannel's lease value in its first line, expiry and revision in its second |

Several daemons on one host, each with a network of its own, need their own \`--subnet-file\`, \`--state-dir\`, VNI and range, and a
\`Port\` each unless all have \`--dataplane kernel\`: see [backends](backends.md#several-networks-on-one-host). Commands without
\`--state-dir\` mean the daemon of the usual directory, or the only one that runs.

## Exit codes

| code | means |
|---|---|
`

/** The whole page. */
export function configurationPage(): string {
  const codes = Object.entries(EXIT).map(([name, code]) => `| ${code} | ${EXIT_WORDS[name as keyof typeof EXIT]} |`)
  const run = runCommand(
    async () => 0,
    () => {},
  )
  const config = configCommand(
    () => {},
    () => {},
  )
  const status = statusCommand({ out: () => {}, exit: () => {}, tell: () => {} })
  const flags = [
    ...flagTables(run, 'flannelette'),
    RUN,
    ...runFlags(run),
    ...flagTables(status, 'flannelette'),
    ...flagTables(config, 'flannelette'),
    ...flagTables(dockerOptsCommand(), 'flannelette'),
    ...[labCommand(), cleanupCommand(), pingNodeCommand(() => {}), doctorCommand(() => {})].flatMap((one) =>
      flagTables(one, 'flannelette'),
    ),
  ]
  return `${BEFORE}${codes.join('\n')}\n\n## Commands\n\n${flags.join('\n').trimEnd()}\n`
}
