// docs/configuration.md says what the command line and the exit codes say.
import { expect, it } from 'vitest'
import { configurationPage } from './support/configuration-page.ts'

it('docs/configuration.md is what the command definitions make of it', async () => {
  // `npm run vitest -- run test/configuration-page.test.ts -u` writes it anew.
  await expect(configurationPage()).toMatchFileSnapshot('../docs/configuration.md')
})
