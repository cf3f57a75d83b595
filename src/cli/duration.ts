// Lengths of time on the command line, as Go writes them: `500ms`, `30s`, `1m30s`.
import { FlanneletteError } from '../errors.ts'

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }
/** A day: what takes longer is no time limit. */
const MOST_MS = 86_400_000

/** Milliseconds, above 0 and at most a day. @throws FlanneletteError `usage` */
export function parseDuration(flag: string, text: string): number {
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/g)]
  const whole = parts.map(([part]) => part).join('') === text
  const ms = parts.reduce((sum, [, number, unit]) => sum + Number(number) * (UNITS[unit ?? ''] ?? 0), 0)
  if (whole && ms >= 1 && ms <= MOST_MS) return Math.round(ms)
  throw new FlanneletteError('usage', `${flag} ${text} is no length of time`, {
    remedy: 'give one such as 500ms, 30s or 2m',
  })
}
