// What the two ways to write rules have in common.
import type { RuleSet } from './rules.ts'

export type FirewallMode = 'iptables' | 'nftables'

export interface Firewall {
  /**
   * Looks at what is there, puts right what differs, and removes rule sets of ours that are not wanted. Resolves with
   * what was wrong, in phrases; empty when nothing had to be written. Rules of others are never touched.
   * @throws FlanneletteError `host-command`, `not-permitted`
   */
  sync(wanted: readonly RuleSet[]): Promise<readonly string[]>
  /** Commands that take away all that is ours; empty when there is nothing. Changes nothing. */
  removal(): Promise<readonly FirewallCommand[]>
}

/** A program, its words and what it reads: enough to run it, and to show it to a person. */
export interface FirewallCommand {
  readonly argv: readonly string[]
  readonly input?: string
}
