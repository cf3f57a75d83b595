// Rules by iptables or ip6tables, of either variant: read by `-S`, written by iptables-restore, which changes a table
// in one step and leaves what it was not told of alone. The lock that all users of these programs share is waited for.
import { attempt, commandFailure, type InNamespace, run } from '../command.ts'
import type { Firewall, FirewallCommand } from './firewall.ts'
import {
  CHAINS,
  type ChainListing,
  type ChainPlace,
  type ChainText,
  chainsOf,
  chainText,
  planRepair,
  printedForm,
  type Repair,
  seatsInListing,
} from './iptables-text.ts'
import type { Family, RuleSet, RuleSetName } from './rules.ts'

/** Seconds to wait for whoever else is changing rules. */
const LOCK_PATIENCE_S = 5
/** Exit code for a chain that is not there; others are real failures (3: no such table, 4: the lock). */
const NO_CHAIN = 1
const RULE_SETS = Object.keys(CHAINS) as RuleSetName[]

export interface IptablesVersion {
  readonly variant: 'nft' | 'legacy'
  /** Whether it knows `--random-fully` (1.6.2). */
  readonly randomFully: boolean
}

/** By the line of `iptables -V`: `iptables v1.8.9 (nf_tables)`. `null` for what is no such line. */
export function parseIptablesVersion(line: string): IptablesVersion | null {
  const [, major, minor, patch = '0', variant] = /v(\d+)\.(\d+)(?:\.(\d+))?[^(]*(?:\((\w+)\))?/.exec(line) ?? []
  if (major === undefined || minor === undefined) return null
  const number = Number(major) * 1e6 + Number(minor) * 1e3 + Number(patch)
  return { variant: variant === 'nf_tables' ? 'nft' : 'legacy', randomFully: number >= 1_006_002 }
}

/** The program of the plain name, or one variant of it by its own name. */
export type Alternative = '' | '-nft' | '-legacy'

export interface IptablesOptions {
  /** Masqueraded ports at random where the program can; default: not. */
  readonly randomFully?: boolean
  readonly alternative?: Alternative
  /** Whose chains they are: the seat of the daemon on its host; default: 1. */
  readonly seat?: number
}

/** `null`: nothing of ours. */
type ChainWish = (name: RuleSetName) => ChainText | null | 'as it is'
type TableRepair = Repair & { readonly place: ChainPlace; readonly wanted: ChainText | null }

export class Iptables implements Firewall {
  readonly #family: Family
  readonly #options: IptablesOptions
  readonly #program: string
  readonly #where: InNamespace
  readonly #chains: Readonly<Record<RuleSetName, ChainPlace>>
  #version: IptablesVersion | null = null
  /** What is not wanted was looked for, and is gone. */
  #tidy = false
  readonly #printed = new Map<ChainPlace, ChainText>()

  constructor(family: Family, options: IptablesOptions, where: InNamespace = {}) {
    this.#family = family
    this.#options = options
    this.#program = `${family === 'ip' ? 'iptables' : 'ip6tables'}${options.alternative ?? ''}`
    this.#where = where
    this.#chains = chainsOf(options.seat ?? 1)
  }

  /** Seats whose chains are there, whoever sits on them; the first one may have rules without a chain. */
  async seats(): Promise<readonly number[]> {
    const found = new Set([1])
    for (const table of ['nat', 'filter']) {
      if (!(await this.#mayHold(table))) continue
      const { stdout } = await attempt([this.#program, '-w', String(LOCK_PATIENCE_S), '-t', table, '-S'], this.#where)
      for (const seat of seatsInListing(stdout)) found.add(seat)
    }
    return [...found]
  }

  /** @throws FlanneletteError `host-command` when the program is missing */
  async variant(): Promise<IptablesVersion['variant'] | null> {
    return (await this.#identify())?.variant ?? null
  }

  /** Rules of anybody in POSTROUTING of table nat, as `-S` lists them. */
  async translations(): Promise<readonly string[]> {
    return (await this.#mayHold('nat')) ? ((await this.#rulesOf('nat', 'POSTROUTING')) ?? []) : []
  }

  async sync(wanted: readonly RuleSet[]): Promise<readonly string[]> {
    const randomFully = this.#options.randomFully === true && (await this.#identify())?.randomFully === true
    const repairs = await this.#repairs((name) => {
      const set = wanted.find((candidate) => candidate.name === name)
      if (set === undefined) return this.#tidy ? 'as it is' : null
      return chainText(set, randomFully, this.#chains)
    })
    if (repairs.length > 0) {
      const { argv, input } = this.#command(repairs)
      const result = await attempt(argv, { ...this.#where, input })
      if (result.exitCode !== 0) throw commandFailure(argv, result, this.#where.namespace)
    }
    this.#tidy = true
    await this.#learn(repairs)
    return repairs.flatMap(({ faults }) => faults.map((fault) => `${this.#program}: ${fault}`))
  }

  async removal(): Promise<readonly FirewallCommand[]> {
    const repairs = await this.#repairs(() => null)
    return repairs.length === 0 ? [] : [this.#command(repairs)]
  }

  async #identify(): Promise<IptablesVersion | null> {
    this.#version ??= parseIptablesVersion(await run([this.#program, '-V'], this.#where))
    return this.#version
  }

  async #repairs(wish: ChainWish): Promise<TableRepair[]> {
    const places = RULE_SETS.map((name) => ({ place: this.#chains[name], wanted: wish(name) }))
    const repairs: TableRepair[] = []
    for (const { place, wanted } of places) {
      if (wanted === 'as it is' || (wanted === null && !(await this.#mayHold(place.table)))) continue
      const listed = wanted === null ? null : (this.#printed.get(place) ?? wanted)
      const found = planRepair(place, wanted, await this.#list(place), listed)
      if (found.faults.length > 0) repairs.push({ ...found, place, wanted })
    }
    return repairs
  }

  async #learn(repairs: readonly TableRepair[]): Promise<void> {
    for (const { place, wanted } of repairs) {
      const printed = wanted === null ? null : printedForm(place, wanted, await this.#list(place))
      if (printed !== null) this.#printed.set(place, printed)
    }
  }

  /** The legacy variant makes a table by looking at it (and a nat table costs every connection something). */
  async #mayHold(table: string): Promise<boolean> {
    if ((await this.variant()) !== 'legacy') return true
    const names = await attempt(['cat', `/proc/net/${this.#family}_tables_names`], this.#where)
    return names.stdout.split('\n').includes(table)
  }

  #command(repairs: readonly TableRepair[]): Required<FirewallCommand> {
    const tables = repairs.map(({ place, lines }) => `*${place.table}\n${lines.join('\n')}\nCOMMIT\n`)
    return { argv: [`${this.#program}-restore`, '--noflush', `--wait=${LOCK_PATIENCE_S}`], input: tables.join('') }
  }

  async #list({ table, hook, chain }: ChainPlace): Promise<ChainListing> {
    return { hook: (await this.#rulesOf(table, hook)) ?? [], chain: await this.#rulesOf(table, chain) }
  }

  /** The rules of a chain, `null` when there is no such chain. */
  async #rulesOf(table: string, chain: string): Promise<readonly string[] | null> {
    const argv = [this.#program, '-w', String(LOCK_PATIENCE_S), '-t', table, '-S', chain]
    const result = await attempt(argv, this.#where)
    if (result.exitCode === NO_CHAIN) return null
    if (result.exitCode !== 0) throw commandFailure(argv, result, this.#where.namespace)
    return result.stdout.split('\n').filter((line) => line.startsWith('-A '))
  }
}
