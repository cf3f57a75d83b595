// Rules by nft: one table for each family, ours alone, replaced whole in one transaction.
import { attempt, commandFailure, type InNamespace, run } from '../command.ts'
import { loadRuleset, replaceTable } from '../nft.ts'
import type { Firewall, FirewallCommand } from './firewall.ts'
import { type AddressMatch, FAMILIES, type Family, MASQUERADE_MARK, type Rule, type RuleSet } from './rules.ts'

const TABLES: Readonly<Record<Family, string>> = { ip: 'flannel-ipv4', ip6: 'flannel-ipv6' }

type Tables = Readonly<Record<Family, string>>

/** Of the daemon with that seat on its host: the first one has flannel's very names. */
function tablesOf(seat: number): Tables {
  return seat === 1 ? TABLES : { ip: `${TABLES.ip}-${seat}`, ip6: `${TABLES.ip6}-${seat}` }
}

/** Seats whose tables are there. @throws FlanneletteError `host-command`, `not-permitted` */
export async function seatsWithTables(where: InNamespace = {}): Promise<readonly number[]> {
  const listing = await run(['nft', 'list', 'tables'], where)
  const found = [...listing.matchAll(/^table ip6? flannel-ipv[46](?:-(\d+))?$/gm)]
  return [...new Set(found.map(([, number]) => Number(number ?? 1)))]
}

const CHAINS = {
  masquerade: {
    name: 'postrtg',
    hook: 'type nat hook postrouting priority srcnat; policy accept;',
    comment: 'chain to manage traffic masquerading by flannel',
  },
  forward: {
    name: 'forward',
    hook: 'type filter hook forward priority filter; policy accept;',
    comment: 'chain to accept flannel traffic',
  },
} as const

/**
 * The lines of a family's table between its braces, in nft's own order and words (nft(8), as `nft list` prints them).
 */
function tableBody(family: Family, table: string, sets: readonly RuleSet[], randomFully: boolean): string {
  const chains = sets
    .filter((set) => set.family === family)
    .map(({ name, rules }) => {
      const { name: chain, hook, comment } = CHAINS[name]
      const lines = [`comment "${comment}"`, hook, ...rules.map((rule) => ruleText(family, rule, randomFully))]
      return `\tchain ${chain} {\n${lines.map((line) => `\t\t${line}\n`).join('')}\t}`
    })
  return [`\tcomment "rules for ${table}"`, ...chains].join('\n\n')
}

function ruleText(family: Family, { marked, source, destination, verdict }: Rule, randomFully: boolean): string {
  const words: string[] = []
  if (marked) words.push(`meta mark 0x${MASQUERADE_MARK.slice(2).padStart(8, '0')}`)
  if (source !== undefined) words.push(matchText(family, 'saddr', source))
  if (destination !== undefined) words.push(matchText(family, 'daddr', destination))
  return [...words, verdict, ...(verdict === 'masquerade' && randomFully ? ['fully-random'] : [])].join(' ')
}

function matchText(family: Family, field: string, { not, prefix }: AddressMatch): string {
  return `${family} ${field} ${not ? '!= ' : ''}${prefix}`
}

export interface NftablesOptions {
  /** Masqueraded ports at random where nft and kernel can. */
  readonly randomFully: boolean
  /** Families whose table is kept; both with flannel. */
  readonly families?: readonly Family[]
  /** Whose tables they are: the seat of the daemon on its host; default: 1. */
  readonly seat?: number
}

export class Nftables implements Firewall {
  readonly #options: NftablesOptions
  readonly #where: InNamespace
  readonly #tables: Tables
  /**
   * What nft said of each table right after it was written: other versions of nft may print it otherwise than we do.
   */
  readonly #listed = new Map<Family, string>()
  #randomFully: boolean | null = null

  constructor(options: NftablesOptions, where: InNamespace = {}) {
    this.#options = options
    this.#where = where
    this.#tables = tablesOf(options.seat ?? 1)
  }

  async sync(wanted: readonly RuleSet[]): Promise<readonly string[]> {
    this.#randomFully ??= this.#options.randomFully && (await this.#knowsFullyRandom())
    const faults: string[] = []
    const texts: string[] = []
    const families = this.#options.families ?? FAMILIES
    for (const family of families) {
      const body = tableBody(family, this.#tables[family], wanted, this.#randomFully)
      const present = await this.#list(family)
      const right = this.#listed.get(family) ?? normalized(`table ${family} ${this.#tables[family]} {\n${body}\n}`)
      if (present === right) continue
      faults.push(`table ${family} ${this.#tables[family]} ${present === null ? 'is missing' : 'differs'}`)
      texts.push(replaceTable(family, this.#tables[family], body))
    }
    if (texts.length === 0) return []
    await loadRuleset(texts.join(''), this.#where)
    for (const family of families) {
      const listing = await this.#list(family)
      if (listing !== null) this.#listed.set(family, listing)
    }
    return faults
  }

  async removal(): Promise<readonly FirewallCommand[]> {
    const commands: FirewallCommand[] = []
    for (const family of FAMILIES) {
      if ((await this.#list(family)) === null) continue
      commands.push({ argv: ['nft', 'delete', 'table', family, this.#tables[family]] })
    }
    return commands
  }

  /** A table as nft lists it, `null` when there is none. */
  async #list(family: Family): Promise<string | null> {
    const argv = ['nft', 'list', 'table', family, this.#tables[family]]
    const result = await attempt(argv, this.#where)
    if (result.exitCode === 0) return normalized(result.stdout)
    if (/No such file or directory/.test(result.stderr)) return null
    throw commandFailure(argv, result, this.#where.namespace)
  }

  /** Tried dry, in a chain that never comes to be. */
  async #knowsFullyRandom(): Promise<boolean> {
    const chain = `chain masqueradeTest { ${CHAINS.masquerade.hook} masquerade fully-random; }`
    const input = `table ip ${this.#tables.ip} { ${chain}; }\n`
    return (await attempt(['nft', '--check', '-f', '-'], { ...this.#where, input })).exitCode === 0
  }
}

function normalized(listing: string): string {
  const lines = listing.split('\n').map((line) => line.trim().replace(/\s+/g, ' '))
  return lines.filter((line) => line !== '').join('\n')
}
