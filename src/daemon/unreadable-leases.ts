// What a status says of the store's entries that hold no lease: how many, and the first of them. Anybody may have
// written them, thousands of them as well.
import { foreignWords } from '../foreign-words.ts'
import type { UnreadableEntry } from '../store/lease-store.ts'

export interface UnreadableLeases {
  readonly count: number
  /** The first ones, {@link EXAMPLES} at most; without control characters, and cut where they are long. */
  readonly examples: readonly {
    /** etcd's key, or the path of a file. */
    readonly key: string
    readonly why: string
  }[]
}

export const EXAMPLES = 5
/** Characters of each that stand in a status. */
const MOST_OF_KEY = 200
const MOST_OF_WHY = 120

export function unreadableLeases(entries: readonly UnreadableEntry[]): UnreadableLeases {
  const examples = entries.slice(0, EXAMPLES).map(({ name, why }) => {
    return { key: foreignWords(name, MOST_OF_KEY), why: foreignWords(why, MOST_OF_WHY) }
  })
  return { count: entries.length, examples }
}

/** In one line with one example; `null` where all can be read. */
export function unreadableInWords({ count, examples }: UnreadableLeases): string | null {
  const [first] = examples
  if (first === undefined) return null
  if (count === 1) return `the lease ${first.key} in the store cannot be read: ${first.why}`
  return `${count} leases in the store cannot be read, such as ${first.key}: ${first.why}`
}
