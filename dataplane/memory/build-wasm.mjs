// Build step: compiles checksum.as.ts and writes the module, as base64, into a TypeScript file beside it, so that
// the package needs no loader and no file at run time. Does nothing when the result is newer than its sources.
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const here = fileURLToPath(new URL('.', import.meta.url))
const source = join(here, 'checksum.as.ts')
const target = join(here, 'checksum.generated.ts')

/** Modification time in milliseconds, 0 for a file that is not there. */
async function changedAt(path) {
  const found = await stat(path).catch(() => null)
  return found === null ? 0 : found.mtimeMs
}

const newest = Math.max(await changedAt(source), await changedAt(fileURLToPath(import.meta.url)))
if ((await changedAt(target)) < newest) {
  const { default: asc } = await import('assemblyscript/asc')
  const folder = await mkdtemp(join(tmpdir(), 'flannelette-wasm-'))
  const output = join(folder, 'checksum.wasm')
  const { error, stderr } = await asc.main([
    source,
    ...['--outFile', output, '-O3', '--runtime', 'stub', '--noAssert', '--use', 'abort='],
    ...['--enable', 'simd', '--enable', 'threads'],
    ...['--importMemory', '--sharedMemory', '--initialMemory', '1', '--maximumMemory', '65536'],
  ])
  if (error !== null) {
    process.stderr.write(`${stderr.toString()}\n${error.message}\n`)
    process.exit(1)
  }
  const module = (await readFile(output)).toString('base64')
  await rm(folder, { recursive: true })
  const text = `// Made by build-wasm.mjs from checksum.as.ts.\nexport const CHECKSUM_WASM_BASE64 =\n  '${module}'\n`
  await writeFile(target, text)
}
