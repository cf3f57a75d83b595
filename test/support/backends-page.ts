// docs/backends.md and the network configs in it, for tests that check them and for one that runs one.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from './source-tree.ts'

export function backendsPage(): string {
  return readFileSync(join(ROOT, 'docs/backends.md'), 'utf8')
}

/** The texts of its JSON blocks. */
export function configsOf(page: string): string[] {
  return [...page.matchAll(/^```json\n([\s\S]*?)^```$/gm)].map(([, text]) => text ?? '')
}

/** The one of the extension, whose commands are run without a shell. */
export function extensionConfig(): unknown {
  const text = configsOf(backendsPage()).find((config) => config.includes('"extension"'))
  if (text === undefined) throw new Error('docs/backends.md shows no extension')
  return JSON.parse(text)
}
