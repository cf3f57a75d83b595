// Time spans for people.

const UNITS = [
  ['d', 86_400],
  ['h', 3600],
  ['m', 60],
  ['s', 1],
] as const

/** The two largest units of a span of milliseconds: `3s`, `2m5s`, `23h58m`, `6d4h`; nothing is less than `0s`. */
export function formatSpan(milliseconds: number): string {
  let left = Math.max(0, Math.floor(milliseconds / 1000))
  const parts: string[] = []
  for (const [unit, seconds] of UNITS) {
    const count = Math.floor(left / seconds)
    left -= count * seconds
    if (count > 0 || (unit === 's' && parts.length === 0)) parts.push(`${count}${unit}`)
    else if (parts.length > 0) break
    if (parts.length === 2) break
  }
  return parts.join('')
}
