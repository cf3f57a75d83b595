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
