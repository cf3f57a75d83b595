// docs/wire-formats.md says what the field tables say.
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { ROOT } from './support/source-tree.ts'
import { wireFormatsPage } from './support/wire-formats-page.ts'

describe('docs/wire-formats.md', () => {
  it('is what the field tables make of it', async () => {
    // `npm run vitest -- run test/wire-formats-page.test.ts -u` writes it anew.
    await expect(wireFormatsPage()).toMatchFileSnapshot('../docs/wire-formats.md')
  })

  it('has a section for every wire file with a header', () => {
    const vocabulary = ['address.ts', 'field.ts', 'internet-checksum.ts', 'layers.ts', 'options.ts', 'prefix.ts']
    const files = readdirSync(join(ROOT, 'dataplane', 'wire')).filter((name) => !vocabulary.includes(name))
    expect(files.length).toBeGreaterThan(5)
    for (const file of files) expect(wireFormatsPage()).toContain(`\`dataplane/wire/${file}\``)
  })

  it('computes the overhead of the tunnel from the headers', () => {
    expect(wireFormatsPage()).toContain('= **50 bytes**')
  })
})
