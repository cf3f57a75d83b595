// The `extension` backend: commands of the operator's do what a dataplane does. One before the lease, whose output other
// nodes get with it; one once the lease is there; and for each peer one when it comes and one when it goes
// (peer-commands.ts says when, told-peers.ts remembers whom). Values reach a command by its environment and its standard
// input alone; all of them are formatted here, from numbers.
import { formatIpv4, formatIpv6, formatPrefix, type Prefix } from '../../dataplane/index.ts'
import type { Clock } from '../clock.ts'
import { systemClock } from '../clock.ts'
import { COMMAND_KEYS, type ExtensionCommands } from '../config/extension-commands.ts'
import { FlanneletteError } from '../errors.ts'
import { type CommandEnd, runConfigured } from '../host/configured-command.ts'
import type { LocalVtep } from '../host/dataplane.ts'
import type { Pending } from '../host/pending.ts'
import { sameAttributes } from '../lease/diff.ts'
import { halvesInWords, ipv6HalfOf, type Lease, nameOf } from '../lease/lease.ts'
import type { Log } from '../log.ts'
import { maskSecrets } from '../secrets.ts'
import { IdleDataplane } from './idle-dataplane.ts'
import { PeerCommands, type PeerEvent, type PendingPeer } from './peer-commands.ts'
import type { ToldPeers } from './told-peers.ts'

/** A command that takes longer is killed, milliseconds. */
const COMMAND_LIMIT_MS = 30_000
/** Characters of a command's output that go into the log. */
const LOGGED_OUTPUT = 500

type CommandName = keyof typeof COMMAND_KEYS
type Variables = Readonly<Record<string, string>>
type Run = typeof runConfigured

export interface ExtensionOptions {
  readonly commands: ExtensionCommands
  readonly log: Log
  /** What commands find in their environment: nothing secret. */
  readonly environment: Readonly<Record<string, string | undefined>>
  /** Peers that commands were told of, across runs; absent: nothing is remembered. */
  readonly told?: Pick<ToldPeers, 'read' | 'add' | 'remove'>
  readonly clock?: Clock
  /** Stands in for the running of commands in tests. */
  readonly run?: Run
}

export class ExtensionDataplane extends IdleDataplane {
  override readonly kind = 'commands'
  readonly #options: ExtensionOptions
  readonly #run: Run
  readonly #peers: PeerCommands<Lease>
  #data: string | undefined

  constructor(options: ExtensionOptions) {
    super()
    this.#options = options
    this.#run = options.run ?? runConfigured
    const work = {
      add: (peer: Lease) => this.#add(peer),
      remove: (peer: Lease) => this.#remove(peer),
      tell: (event: PeerEvent) => this.#tell(event),
    }
    this.#peers = new PeerCommands(work, options.clock ?? systemClock(), samePeer)
  }

  /** @throws FlanneletteError `host-command` when the command fails */
  override async prepare(): Promise<void> {
    if (this.#options.commands.preStartup === null) return
    this.#data = await this.#mustRun('preStartup', {})
  }

  /** What the command before the lease has said, for the lease: a JSON string. */
  leaseData(): string | undefined {
    return this.#data
  }

  /** @throws FlanneletteError `host-command` when the command fails */
  override async start(local: LocalVtep): Promise<void> {
    this.#peers.recall(this.#options.told?.read() ?? new Map())
    if (this.#options.commands.postStartup === null) return
    await this.#mustRun('postStartup', {
      NETWORK: textOf(local.network),
      SUBNET: textOf(local.subnet),
      IPV6SUBNET: textOf(local.ipv6Subnet),
      ...ownAddresses(local),
    })
  }

  override replacePeers(peers: readonly Lease[], cause: string): Promise<number> {
    this.#peers.want(new Map(peers.map((peer) => [nameOf(peer), peer])))
    return super.replacePeers(peers, cause)
  }

  /** Where the others are reached is the commands' business. */
  override pendingSubnets(): Pending {
    const waiting = [...this.#peers.pending.values()]
    return new Map(
      waiting.flatMap((one) => halvesInWords(one.peer).map((subnet) => [subnet, whyPending(one)] as const)),
    )
  }

  override async stop(mode: 'keep' | 'remove'): Promise<void> {
    if (mode === 'keep') return this.#peers.close()
    for (const [peer, failure] of await this.#peers.removeAll()) {
      this.#options.log.warn('peer-kept', `${COMMAND_KEYS.subnetRemove} for ${peer} failed: ${failure}`)
    }
  }

  async #mustRun(name: CommandName, variables: Variables): Promise<string> {
    const { output, failure, isCut } = await this.#execute(name, variables, '\n')
    if (failure === null && isCut && name === 'preStartup') {
      throw new FlanneletteError('host-command', `Backend.${COMMAND_KEYS[name]} says more than 64 KiB`, {
        remedy: 'its output is given to every peer with the lease, and cut off it would be of no use: say less',
      })
    }
    if (failure === null) return output
    const said = output === '' ? '' : `: ${clipped(output)}`
    throw new FlanneletteError('host-command', `Backend.${COMMAND_KEYS[name]} failed (${failure})${said}`, {
      remedy: 'correct the command in the network config; it is run without a shell unless Backend.Shell is true',
    })
  }

  #add(peer: Lease): Promise<string | null> {
    this.#options.told?.add(peer)
    return this.#runFor('subnetAdd', peer)
  }

  async #remove(peer: Lease): Promise<string | null> {
    const failure = await this.#runFor('subnetRemove', peer)
    if (failure === null) this.#options.told?.remove(nameOf(peer))
    return failure
  }

  async #runFor(name: 'subnetAdd' | 'subnetRemove', peer: Lease): Promise<string | null> {
    if (this.#options.commands[name] === null) return null
    const { publicIp, publicIpv6, backendData, backendV6Data } = peer.attributes
    const variables = {
      SUBNET: textOf(peer.subnet),
      IPV6SUBNET: textOf(ipv6HalfOf(peer)),
      PUBLIC_IP: publicIp === 0 ? '' : formatIpv4(publicIp),
      PUBLIC_IPV6: publicIpv6 ?? '',
    }
    const data = [backendData, backendV6Data].find((half) => typeof half === 'string') ?? ''
    const { output, failure } = await this.#execute(name, variables, `${data}\n`)
    return failure === null || output === '' ? failure : `${failure}: ${clipped(output)}`
  }

  async #execute(name: CommandName, variables: Variables, input: string): Promise<CommandEnd> {
    const { commands, environment, log } = this.#options
    const command = { text: commands[name] ?? '', shell: commands.shell }
    const end = await this.#run(command, { variables, environment, input, limitMs: COMMAND_LIMIT_MS })
    // What is said before the lease is for other nodes, and may be a key: its length must do.
    const said = name === 'preStartup' ? `${end.output.length} characters for the lease` : clipped(end.output)
    const fields = { ...variables, ...(said === '' ? {} : { output: said }) }
    const how = end.failure === null ? 'has run' : `failed (${end.failure})`
    log[name === 'subnetAdd' || name === 'subnetRemove' ? 'debug' : 'info'](
      'extension-command',
      `${COMMAND_KEYS[name]} ${how}`,
      fields,
    )
    return end
  }

  #tell({ peer, what, failure, failures, givenUp }: PeerEvent): void {
    const { log } = this.#options
    const key = keyOf(what)
    if (failure === null) {
      log.info('peer-programmed', `${key} for ${peer} has worked after ${failures} failed attempts`)
      return
    }
    if (givenUp) this.#options.told?.remove(peer)
    const next = givenUp ? 'given up' : 'it is tried again'
    log.warn('peer-pending', `${key} for ${peer} failed, ${next}: ${failure}`, { failures })
  }
}

function keyOf(what: PeerEvent['what']): string {
  return COMMAND_KEYS[what === 'add' ? 'subnetAdd' : 'subnetRemove']
}

function whyPending({ what, failure, failures }: PendingPeer<Lease>): string {
  if (failure === null) return `${keyOf(what)} has not ended yet`
  return `${keyOf(what)} failed${failures === 1 ? '' : ` ${failures} times`}: ${failure}`
}

function textOf(prefix: Prefix | null): string {
  return prefix === null ? '' : formatPrefix(prefix)
}

function ownAddresses({ underlayAddress, underlayIpv6 }: LocalVtep): Variables {
  const ipv6 = typeof underlayAddress === 'bigint' ? underlayAddress : underlayIpv6
  return {
    PUBLIC_IP: typeof underlayAddress === 'number' ? formatIpv4(underlayAddress) : '',
    PUBLIC_IPV6: ipv6 === undefined ? '' : formatIpv6(ipv6),
  }
}

/** Whether what a command would be told of a peer is the same. */
function samePeer(a: Lease, b: Lease): boolean {
  return a.ipv6Subnet === b.ipv6Subnet && sameAttributes(a.attributes, b.attributes)
}

function clipped(output: string): string {
  const masked = maskSecrets(output).replace(/\s*\n\s*/g, ' / ')
  return masked.length <= LOGGED_OUTPUT ? masked : `${masked.slice(0, LOGGED_OUTPUT)}…`
}
