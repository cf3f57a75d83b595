// `nft` of nftables: loads a ruleset as one transaction, or removes a table.
import { attempt, commandFailure, type InNamespace } from './command.ts'

/**
 * Loads a ruleset text; all of it takes effect or nothing does.
 * @throws FlanneletteError `host-command` with nft's first complaint
 */
export async function loadRuleset(ruleset: string, where: InNamespace = {}): Promise<void> {
  const argv = ['nft', '-f', '-']
  const result = await attempt(argv, { ...where, input: ruleset })
  if (result.exitCode !== 0) throw commandFailure(argv, result, where.namespace)
}

/** Text that replaces a table: made if absent so that the delete cannot fail, then deleted, then `body` if any. */
export function replaceTable(family: string, name: string, body: string): string {
  const fresh = `table ${family} ${name} {}\ndelete table ${family} ${name}\n`
  return body === '' ? fresh : `${fresh}table ${family} ${name} {\n${body}\n}\n`
}
