// Rules in the words of iptables: what is written, and what `iptables -S` says of it afterwards (iptables-save syntax,
// which both the legacy and the nf_tables variant print alike).
import { MASQUERADE_MARK, type Rule, type RuleSet, type RuleSetName } from './rules.ts'

/** Where a rule set lives, by flannel's names. */
export interface ChainPlace {
  readonly table: 'nat' | 'filter'
  readonly hook: 'POSTROUTING' | 'FORWARD'
  readonly chain: string
  readonly comment: string
}

export const CHAINS: Readonly<Record<RuleSetName, ChainPlace>> = chainsOf(1)

/** Of the daemon with that seat on its host: the first one has flannel's very names. */
export function chainsOf(seat: number): Readonly<Record<RuleSetName, ChainPlace>> {
  const [dashed, spaced] = seat === 1 ? ['', ''] : [`-${seat}`, ` ${seat}`]
  return {
    masquerade: {
      table: 'nat',
      hook: 'POSTROUTING',
      chain: `FLANNEL-POSTRTG${dashed}`,
      comment: `flanneld masq${spaced}`,
    },
    forward: { table: 'filter', hook: 'FORWARD', chain: `FLANNEL-FWD${dashed}`, comment: `flanneld forward${spaced}` },
  }
}

/** Seats whose chains are in `iptables -S` of a whole table. */
export function seatsInListing(listing: string): number[] {
  const found = [...listing.matchAll(/^-N FLANNEL-(?:POSTRTG|FWD)(?:-(\d+))?$/gm)]
  return found.map(([, number]) => Number(number ?? 1))
}

export interface ChainText {
  /** The one line that leads from the hook to our chain. */
  readonly jump: string
  /** The lines of our chain, in order. */
  readonly rules: readonly string[]
}

/** `randomFully`: masqueraded source ports are chosen at random. */
export function chainText({ name, rules }: RuleSet, randomFully: boolean, chains = CHAINS): ChainText {
  const place = chains[name]
  return { jump: jumpTo(place), rules: rules.map((rule) => `-A ${place.chain} ${ruleWords(place, rule, randomFully)}`) }
}

function jumpTo({ hook, comment, chain }: ChainPlace): string {
  return `-A ${hook} -m comment --comment "${comment}" -j ${chain}`
}

function ruleWords({ comment }: ChainPlace, rule: Rule, randomFully: boolean): string {
  const { marked, source, destination, verdict } = rule
  const words: string[] = []
  if (source !== undefined) words.push(`${source.not ? '! ' : ''}-s ${source.prefix}`)
  if (destination !== undefined) words.push(`${destination.not ? '! ' : ''}-d ${destination.prefix}`)
  if (marked) words.push(`-m mark --mark ${MASQUERADE_MARK}/${MASQUERADE_MARK}`)
  words.push(`-m comment --comment "${comment}"`, `-j ${verdict.toUpperCase()}`)
  if (verdict === 'masquerade' && randomFully) words.push('--random-fully')
  return words.join(' ')
}

/** What `iptables -S` said of a hook and of our chain; `chain` is `null` when there is no such chain. */
export interface ChainListing {
  readonly hook: readonly string[]
  readonly chain: readonly string[] | null
}

export interface Repair {
  /** What is wrong, in phrases; empty when all is right. */
  readonly faults: readonly string[]
  /** Lines for iptables-restore between `*TABLE` and `COMMIT`. */
  readonly lines: readonly string[]
}

/**
 * What must be written so that the listing becomes `wanted` (`null`: nothing of ours). Our chain is compared as a whole
 * and rewritten as a whole, so that neither order nor a stranger in it goes unnoticed. In the hook only what carries
 * our comment, leads to our chain or says word for word what a rule of ours says is ours: former versions of flannel
 * put all their rules there, the first ones without a comment. The jump is appended when
 * it is missing and stays where it is among others' rules otherwise: two programs that both insist on being first would
 * push each other away for ever. `listed` is how the program prints what is wanted, where that was seen.
 */
export function planRepair(
  place: ChainPlace,
  wanted: ChainText | null,
  present: ChainListing,
  listed: ChainText | null = wanted,
): Repair {
  const { chain, hook } = place
  const former = new Set((wanted?.rules ?? []).map((line) => withoutComment(place, line.replace(chain, hook))))
  const isFormer = (line: string) => former.has(withoutComment(place, line))
  const ours = present.hook.filter((line) => isOurs(place, line) || isFormer(line))
  const keptAt = listed === null ? -1 : ours.indexOf(listed.jump)
  // -D takes the first rule that fits: of two equal jumps the first goes and the last stays, which is as good.
  const stale = ours.filter((_, index) => index !== keptAt)
  const faults: string[] = []
  const lines: string[] = []
  const differs = listed !== null && !sameLines(listed.rules, present.chain ?? [])
  if (wanted !== null && present.chain === null) faults.push(`chain ${chain} is missing`)
  else if (differs) faults.push(`rules of ${chain} are missing, changed or out of order`)
  if (wanted === null && present.chain !== null) faults.push(`chain ${chain} is left over`)
  if (stale.length > 0) faults.push(`${hook} has ${stale.length} left-over rules of ours`)
  if (wanted !== null && keptAt < 0) faults.push(`${hook} does not lead to ${chain}`)
  if (faults.length === 0) return { faults, lines }
  // A chain that is declared is made, or emptied when it is there.
  if (differs || present.chain !== null) lines.push(`:${chain} - [0:0]`)
  lines.push(...stale.map((line) => line.replace(/^-A/, '-D')))
  if (wanted === null) return { faults, lines: present.chain === null ? lines : [...lines, `-X ${chain}`] }
  lines.push(...wanted.rules)
  if (keptAt < 0) lines.push(wanted.jump)
  return { faults, lines }
}

/**
 * How the program prints what was just written, by what it lists then; `null` where that cannot be it. Versions may
 * print otherwise than we do, and a rule that is right must not be written again and again.
 */
export function printedForm(place: ChainPlace, written: ChainText, { hook, chain }: ChainListing): ChainText | null {
  const [jump, ...more] = hook.filter((line) => isOurs(place, line))
  if (jump === undefined || more.length > 0 || chain?.length !== written.rules.length) return null
  return { jump, rules: chain }
}

function isOurs({ comment, chain }: ChainPlace, line: string): boolean {
  return line.includes(` --comment "${comment}"`) || new RegExp(` -[jg] ${chain}( |$)`).test(line)
}

/** A rule as former versions wrote it: without comment and random ports. */
function withoutComment({ comment }: ChainPlace, line: string): string {
  return line.replace(` -m comment --comment "${comment}"`, '').replace(' --random-fully', '')
}

function sameLines(one: readonly string[], other: readonly string[]): boolean {
  return one.length === other.length && one.every((line, index) => line === other[index])
}
