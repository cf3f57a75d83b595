// A directory of a test's own, gone afterwards.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'

/** Call inside a test. Goes although a write in the background ends at the same time. */
export function temporaryDirectory(): string {
  const path = mkdtempSync(join(tmpdir(), 'flannelette-test-'))
  onTestFinished(() => rmSync(path, { recursive: true, force: true, maxRetries: 10 }))
  return path
}
