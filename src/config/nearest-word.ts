// Which known word somebody meant who wrote another one.

/** Longer than any word that is known. */
const LONGEST_WORD = 64

/** The known word that is closest by insertions, deletions and replacements; `null` when none is close. */
export function nearest(word: string, known: readonly string[]): string | null {
  if (word.length > LONGEST_WORD) return null
  let best: { name: string; distance: number } | null = null
  for (const name of known) {
    const distance = editDistance(word.toLowerCase(), name.toLowerCase())
    if (best === null || distance < best.distance) best = { name, distance }
  }
  if (best === null || best.distance > Math.max(1, Math.floor(word.length / 3))) return null
  return best.name
}

/** Levenshtein's distance, a row at a time. */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, column) => column)
  for (let i = 1; i <= from.length; i++) {
    const next = [i]
    for (let j = 1; j <= to.length; j++) {
      const replaced = row[j - 1]! + (from[i - 1] === to[j - 1] ? 0 : 1)
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1))
    }
    row = next
  }
  return row[to.length]!
}
