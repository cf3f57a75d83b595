// subnet.env as options of a Docker daemon: what flannel's mk-docker-opts.sh writes, byte for byte.
import { formatPrefix, parsePrefix } from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import { parseDotenv } from './subnet-file.ts'

export interface DockerOptionsWanted {
  /** A line for each option. */
  readonly individual: boolean
  /** One line with all of them; its name is `key`. */
  readonly combined: boolean
  readonly key: string
  /** Whether to say who masquerades. */
  readonly ipMasq: boolean
}

type Variables = ReadonlyMap<string, string>

/**
 * The file's text. As in a shell that has read subnet.env (`null` when there is none), variables of the environment
 * with `DOCKER_OPT_` in them come along. @throws FlanneletteError `config-missing` for an `FLANNEL_IPMASQ` that is no
 * answer
 */
export function dockerOptions(
  subnetFile: string | null,
  environment: Readonly<Record<string, string | undefined>>,
  wanted: DockerOptionsWanted,
): string {
  const variables = new Map(
    Object.entries(environment).filter((entry): entry is [string, string] => entry[1] !== undefined),
  )
  for (const [name, value] of parseDotenv(subnetFile ?? '')) variables.set(name, value)
  const before = variables.get(wanted.key) ?? ''
  for (const [name, value] of ownOptions(variables, wanted)) variables.set(name, value)
  const options = [...variables]
    .filter(([name, value]) => `${name}=${value}`.includes('DOCKER_OPT_'))
    .sort(([one], [other]) => (one < other ? -1 : 1))
  const lines = wanted.individual ? options.map(([name, value]) => `${name}="${value}"\n`) : []
  if (wanted.combined) {
    const all = options.map(([, value]) => ` ${value}`).join('')
    lines.push(`${wanted.key}="${before === '' ? '' : `${before} `}${all}"\n`)
  }
  return lines.join('')
}

function ownOptions(variables: Variables, { ipMasq }: DockerOptionsWanted): [string, string][] {
  const subnet = variables.get('FLANNEL_SUBNET') ?? ''
  const mtu = variables.get('FLANNEL_MTU') ?? ''
  const masquerades = variables.get('FLANNEL_IPMASQ') ?? ''
  const options: [string, string][] = []
  if (subnet !== '') options.push(['DOCKER_OPT_BIP', `--bip=${subnet}`])
  if (mtu !== '') options.push(['DOCKER_OPT_MTU', `--mtu=${mtu}`])
  if (ipMasq && masquerades !== '') options.push(['DOCKER_OPT_IPMASQ', `--ip-masq=${opposite(masquerades)}`])
  return options
}

/** One of the two masquerades. */
function opposite(masquerades: string): string {
  if (masquerades === 'true') return 'false'
  if (masquerades === 'false') return 'true'
  throw new FlanneletteError('config-missing', `FLANNEL_IPMASQ is "${masquerades}", neither true nor false`, {
    remedy: 'let the daemon write subnet.env anew, or leave the option out with -m',
  })
}

/** The node's subnet as a route to it would name it, `null` when the file does not say. */
export function routeToSubnet(subnetFile: string | null): string | null {
  const prefix = parsePrefix(parseDotenv(subnetFile ?? '').get('FLANNEL_SUBNET') ?? '')
  return prefix === null ? null : formatPrefix(prefix)
}
