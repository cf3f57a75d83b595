// Build step: compiles the kernels (*.as.ts) and writes the module, as base64, into a TypeScript file beside them, so
// that the package needs no loader and no file at run time. Does nothing when the result is newer than its sources.
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const here = fileURLToPath(new URL('.', import.meta.url))
const sources = ['checksum.as.ts', 'alike.as.ts'].map((name) => join(here, name))
const target = join(here, 'kernels.generated.ts')

/** Modification time in milliseconds, 0 for a file that is not there. */
async function changedAt(path) {
  const found = await stat(path).catch(() => null)
  return found === null ? 0 : found.mtimeMs
}

const newest = Math.max(...(await Promise.all([...sources, fileURLToPath(import.meta.url)].map(changedAt))))
if ((await changedAt(target)) < newest) {
  const { default: asc } = await import('assemblyscript/asc')
  const folder = await mkdtemp(join(tmpdir(), 'flannelette-wasm-'))
  const output = join(folder, 'kernels.wasm')
  const { error, stderr } = await asc.main([
    ...sources,
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
  const text = `// Made by build-wasm.mjs from the kernels beside it.\nexport const KERNELS_WASM_BASE64 =\n  '${module}'\n`
  await writeFile(target, text)
}
