// Pings in a namespace, counted: those whose answer is late are asked once more, and do not look lost.
import { echo } from '../../src/host/echo.ts'

/** How many of so many pings come back. Silence costs `waitMs`: less where it may be. */
export async function answered(namespace: string, to: string, count = 3, waitMs = 10_000): Promise<number> {
  return (await echo(to, { count, intervalMs: 50, waitMs }, { namespace })).received
}
