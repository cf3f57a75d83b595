// The golden frames in test/golden/, captured from the kernel's VXLAN device by capture-golden.sh, as bytes.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { bytesFrom } from './hex-bytes.ts'
import { ROOT } from './source-tree.ts'

/** One outer Ethernet frame as it was on the underlay. */
export interface GoldenFrame {
  /** File and name: `vxlan-udpcsum/tcp-syn`. */
  readonly name: string
  /** What was done to make it. */
  readonly made: string
  readonly bytes: Uint8Array
}

interface GoldenFile {
  readonly provenance: Readonly<Record<string, string>>
  readonly frames: readonly { readonly name: string; readonly made: string; readonly hex: string }[]
}

const FOLDER = join(ROOT, 'test', 'golden')

export const GOLDEN_FILES: ReadonlyMap<string, GoldenFile> = new Map(
  readdirSync(FOLDER)
    .filter((name) => name.endsWith('.json'))
    .map((name) => [name.replace(/\.json$/, ''), JSON.parse(readFileSync(join(FOLDER, name), 'utf8')) as GoldenFile]),
)

/** All frames of all files, in the order of the files. */
export const GOLDEN_FRAMES: readonly GoldenFrame[] = [...GOLDEN_FILES].flatMap(([file, { frames }]) =>
  frames.map(({ name, made, hex }) => ({ name: `${file}/${name}`, made, bytes: bytesFrom(hex) })),
)

/** The frame of that file and name. Throws when there is none. */
export function goldenFrame(name: string): Uint8Array {
  const frame = GOLDEN_FRAMES.find((candidate) => candidate.name === name)
  if (frame === undefined) throw new Error(`no golden frame ${name}`)
  return frame.bytes
}
