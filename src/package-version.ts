// The version of this package, wherever it runs from.
import { createRequire } from 'node:module'

/** `0.1.0`, from package.json; `unknown` without that file. */
export function packageVersion(): string {
  // One directory up from the sources, two from the build.
  for (const path of ['../package.json', '../../package.json']) {
    try {
      return (createRequire(import.meta.url)(path) as { version: string }).version
    } catch {}
  }
  return 'unknown'
}
