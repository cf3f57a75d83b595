// Recorded steps as JSON lines: how they leave the daemon, and how they are read back.
import type { RecordedStep } from '../../dataplane/index.ts'

/** One line, without its line feed. Nanoseconds are written as text: they do not fit a JSON number. */
export function stepToLine(recorded: RecordedStep): string {
  return JSON.stringify({ timeNs: recorded.timeNs.toString(), snap: recorded.snap, ...recorded.step })
}

/** @throws SyntaxError for a line that is no JSON */
export function stepFromLine(line: string): RecordedStep {
  const { timeNs, snap, ...step } = JSON.parse(line)
  return { timeNs: BigInt(timeNs), snap, step }
}
