// What `flannelette doctor` has to say: findings, each with a severity, one sentence, a remedy and a place in the docs.

/**
 * `ok`: looked at and fine. `note`: worth knowing, nothing to do. `unseen`: could not be looked at, and why. Quiet
 * output shows warnings and errors, and counts what was not seen.
 */
export type Severity = 'error' | 'warning' | 'note' | 'unseen' | 'ok'

export const GROUPS = ['system', 'daemon', 'lease', 'underlay', 'overlay', 'host', 'pods', 'peers'] as const
export type Group = (typeof GROUPS)[number]

/** What a check says; the runner adds which check it was. */
export interface Remark {
  readonly severity: Severity
  /** One sentence. */
  readonly message: string
  /** What to do or to type; `null` when there is nothing to do. */
  readonly remedy: string | null
}

export interface Finding extends Remark {
  readonly check: string
  readonly group: Group
  /** Where the docs say more. */
  readonly docs: string
}

export const ok = (message: string): Remark => ({ severity: 'ok', message, remedy: null })
export const note = (message: string, remedy: string | null = null): Remark => ({ severity: 'note', message, remedy })
export const unseen = (message: string): Remark => ({ severity: 'unseen', message, remedy: null })
export const warning = (message: string, remedy: string): Remark => ({ severity: 'warning', message, remedy })
export const error = (message: string, remedy: string): Remark => ({ severity: 'error', message, remedy })

/** Anchor of a check in docs/troubleshooting.md. */
export function docsOf(check: string): string {
  return `docs/troubleshooting.md#doctor-${check}`
}
