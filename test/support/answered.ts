// Pings in a namespace, counted: those whose answer is late do not look lost.
import { attempt } from '../../src/host/command.ts'
import { echo } from '../../src/host/echo.ts'

/** How long a process on the way may stand still without a ping looking lost. */
const PATIENCE_MS = 5000

/** How many of so many pings come back. What nobody has waited for is asked once more. Silence costs `waitMs`. */
export async function answered(namespace: string, to: string, count = 3, waitMs = PATIENCE_MS): Promise<number> {
  return (await echo(to, { count, intervalMs: 50, waitMs }, { namespace })).received
}

/**
 * Words of a ping that ends with its answer number `count`, and until then asks on: for whoever counts packets, since it
 * says how many it has sent. With a count alone ping would not wait for late answers (ping(8), `-w`).
 */
export function pingWords(to: string, count: number, more: readonly string[] = []): string[] {
  return ['ping', '-n', '-c', String(count), '-i', '0.2', '-w', '30', ...more, to]
}

/** What such a ping said: how many requests it has sent, and the numbers of those that were answered, in order. */
export function pingsIn(output: string): { readonly sent: number; readonly answered: readonly number[] } {
  const answers = [...output.matchAll(/icmp_seq=(\d+) (?:ttl|hlim)=/g)].map(([, number]) => Number(number))
  return { sent: Number(/(\d+) packets transmitted/.exec(output)?.[1]), answered: answers.sort((a, b) => a - b) }
}

/** As {@link answered} with nothing asked once more: how many requests were sent for the first `count`, all answered. */
export async function sentUntilAnswered(namespace: string, to: string, count: number): Promise<number> {
  const { stdout, stderr } = await attempt(pingWords(to, count, ['-i', '0.05']), { namespace, timeoutMs: 60_000 })
  const { sent, answered } = pingsIn(stdout)
  if (answered.join() !== numbersTo(count).join())
    throw new Error(`not all of ${count} are answered: ${stdout}${stderr}`)
  return sent
}

/** 1 to `count`. */
export function numbersTo(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index + 1)
}
