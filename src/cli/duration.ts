// Durations as Go writes them: `300ms`, `90s`, `1m30s`, `1.5h`.
import { InvalidArgumentError } from 'commander'

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }

/** Milliseconds. @throws InvalidArgumentError for anything else, also a number without its unit */
export function parseDuration(text: string): number {
  if (text === '0') return 0
  if (!/^(\d+(\.\d+)?(ms|s|m|h))+$/.test(text))
    throw new InvalidArgumentError('a duration is wanted, such as 30s or 1m30s')
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/g)]
  return parts.reduce((sum, [, count, unit]) => sum + Number(count) * UNIT_MS[unit!]!, 0)
}

/** The two largest units of a time span: `3s`, `2m5s`, `23h58m`, `6d4h`. */
export function formatSpan(milliseconds: number): string {
  let left = Math.max(0, Math.floor(milliseconds / 1000))
  const parts: string[] = []
  for (const [unit, seconds] of [
    ['d', 86_400],
    ['h', 3600],
    ['m', 60],
    ['s', 1],
  ] as const) {
    const count = Math.floor(left / seconds)
    left -= count * seconds
    if (count > 0 || (unit === 's' && parts.length === 0)) parts.push(`${count}${unit}`)
    else if (parts.length > 0) break
    if (parts.length === 2) break
  }
  return parts.join('')
}
