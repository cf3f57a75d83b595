// The rules of a node in the mode that its network asks for, with everything of ours in another mode taken away.
import type { Prefix } from '../../../dataplane/index.ts'
import { attempt, commandFailure, type InNamespace, isInstalled } from '../command.ts'
import { kernelHasIpv6 } from '../sysctl.ts'
import type { Firewall, FirewallCommand, FirewallMode } from './firewall.ts'
import { type Alternative, Iptables } from './iptables.ts'
import { Nftables, seatsWithTables } from './nftables.ts'
import { FAMILIES, type Family, type FamilyNetworks, forwardRules, masqueradeRules, type RuleSet } from './rules.ts'

export interface FirewallWishes {
  readonly mode: FirewallMode
  readonly networks: readonly FamilyNetworks[]
  readonly masquerade: boolean
  /** Destinations outside the networks to which pods keep their addresses; none when left out. */
  readonly unmasqueraded?: readonly Prefix[]
  readonly forward: boolean
  /** Masqueraded ports at random where program and kernel can. */
  readonly randomFully: boolean
  /** Seat of the daemon on its host; default: 1. Chains and tables are named after it. */
  readonly seat?: number
}

/** What was put right, and what kept families from being so. */
export interface SyncResult {
  readonly repaired: readonly string[]
  readonly failures: readonly Error[]
}

export class FirewallKeeper {
  readonly #wishes: FirewallWishes
  readonly #where: InNamespace
  readonly #firewalls: readonly { readonly firewall: Firewall; readonly wanted: readonly RuleSet[] }[]

  constructor(wishes: FirewallWishes, where: InNamespace = {}) {
    this.#wishes = wishes
    this.#where = where
    const { mode, randomFully, seat = 1 } = wishes
    const wanted = ruleSets(wishes)
    const of = (family: Family) => wanted.filter((set) => set.family === family)
    const families = FAMILIES.filter((family) => of(family).length > 0)
    this.#firewalls =
      mode === 'iptables'
        ? families.map((family) => ({
            firewall: new Iptables(family, { randomFully, seat }, where),
            wanted: of(family),
          }))
        : wanted.length === 0
          ? []
          : [{ firewall: new Nftables({ randomFully, families: kernelFamilies(), seat }, where), wanted }]
  }

  /** Whether there is anything to keep. */
  get keeps(): boolean {
    return this.#firewalls.length > 0
  }

  /** Puts right what is not. A family that fails does not keep the other from it. */
  async sync(): Promise<SyncResult> {
    const results = await Promise.allSettled(this.#firewalls.map(({ firewall, wanted }) => firewall.sync(wanted)))
    return {
      repaired: results.flatMap((result) => (result.status === 'fulfilled' ? result.value : [])),
      failures: results.flatMap((result) => (result.status === 'rejected' ? [result.reason as Error] : [])),
    }
  }

  /**
   * Takes away what is ours by other programs, of a family that is not wanted any more, or of seats on which nobody sits
   * (`spared`: those of other daemons). Resolves with the commands.
   */
  async removeOthers(spared: ReadonlySet<number> = new Set()): Promise<readonly FirewallCommand[]> {
    const { mode, seat: own = 1 } = this.#wishes
    const kept = new Set<string>()
    if (mode === 'nftables') {
      if (this.keeps) kept.add('nft')
    } else {
      for (const { wanted } of this.#firewalls) {
        const family = wanted[0]?.family ?? 'ip'
        // A missing program has been told of, and kept nothing.
        const variant = await new Iptables(family, {}, this.#where).variant().catch(() => null)
        if (variant !== null) kept.add(`${family}-${variant}`)
      }
    }
    const commands = await removals(this.#where, (key, seat) => (seat === own ? !kept.has(key) : !spared.has(seat)))
    await runAll(commands, this.#where)
    return commands
  }

  /** Takes away all that is this daemon's, in any mode. @throws FlanneletteError `host-command`, `not-permitted` */
  async remove(): Promise<void> {
    const { seat: own = 1 } = this.#wishes
    await runAll(await removals(this.#where, (_, seat) => seat === own), this.#where)
  }
}

function ruleSets({ networks, masquerade, unmasqueraded = [], forward }: FirewallWishes): RuleSet[] {
  return networks.flatMap((each) => [
    ...(masquerade ? [masqueradeRules(each, unmasqueraded)] : []),
    ...(forward ? [forwardRules(each)] : []),
  ])
}

function kernelFamilies(): readonly Family[] {
  return kernelHasIpv6() ? FAMILIES : ['ip']
}

/**
 * Commands that take away every rule of ours, whatever wrote it; programs that are not installed wrote none. `spared`:
 * seats of daemons that run.
 */
export function firewallRemovals(
  where: InNamespace = {},
  spared: ReadonlySet<number> = new Set(),
): Promise<readonly FirewallCommand[]> {
  return removals(where, (_, seat) => !spared.has(seat))
}

/** Whether what a program has written for a seat is to go. */
type Which = (program: string, seat: number) => boolean

async function removals(where: InNamespace, which: Which): Promise<readonly FirewallCommand[]> {
  const pending: Promise<readonly FirewallCommand[]>[] = []
  for (const family of kernelFamilies()) {
    for (const variant of ['nft', 'legacy'] as const) {
      const goes = (seat: number) => which(`${family}-${variant}`, seat)
      pending.push(variantRemoval(family, variant, where, goes))
    }
  }
  if (isInstalled('nft')) pending.push(tableRemoval(where, (seat) => which('nft', seat)))
  return (await Promise.all(pending)).flat()
}

async function tableRemoval(where: InNamespace, goes: (seat: number) => boolean) {
  const seats = (await seatsWithTables(where)).filter(goes)
  const commands = seats.map((seat) => new Nftables({ randomFully: false, seat }, where).removal())
  return (await Promise.all(commands)).flat()
}

/** By the variant's own name where the system has one, else by the plain name if that is this variant. */
async function variantRemoval(
  family: Family,
  variant: 'nft' | 'legacy',
  where: InNamespace,
  goes: (seat: number) => boolean,
) {
  const plain = family === 'ip' ? 'iptables' : 'ip6tables'
  const alternative: Alternative = isInstalled(`${plain}-${variant}`) ? `-${variant}` : ''
  if (!isInstalled(`${plain}${alternative}`)) return []
  const iptables = new Iptables(family, { alternative }, where)
  if (alternative === '' && (await iptables.variant()) !== variant) return []
  const seats = (await iptables.seats()).filter(goes)
  const commands = seats.map((seat) => new Iptables(family, { alternative, seat }, where).removal())
  return (await Promise.all(commands)).flat()
}

async function runAll(commands: readonly FirewallCommand[], where: InNamespace): Promise<void> {
  for (const { argv, input } of commands) {
    const result = await attempt(argv, { ...where, input: input ?? '' })
    if (result.exitCode !== 0) throw commandFailure(argv, result, where.namespace)
  }
}
