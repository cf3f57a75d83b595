// The project's own files as the house rules see them: paths relative to the root, texts, and syntax trees.
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseSync } from 'vite'

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..', '..')

export interface SourceFile {
  /** Relative to the root, with forward slashes. */
  readonly path: string
  readonly text: string
}

/** A node of the syntax tree (ESTree, with TypeScript's additions). */
export interface SyntaxNode {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly [key: string]: unknown
}

const FOLDERS = ['src', 'dataplane', 'bench', 'test', 'docs', '.ci']
const ROOT_FILES = /^(?!package-lock).*\.(md|json|ts)$|^\.gitignore$/
/** Written by the build or by a capture, not by a person. */
const NOT_OURS = /\.generated\.ts$|^bench\/results\/|\.(pcapng|pcap|bin|png)$/

/** Every file of the project that a person wrote. */
export function projectFiles(): SourceFile[] {
  const paths = FOLDERS.flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => posix.relative(ROOT, join(entry.parentPath, entry.name))),
  )
  return [...readdirSync(ROOT).filter((name) => ROOT_FILES.test(name)), ...paths]
    .filter((path) => !NOT_OURS.test(path))
    .map((path) => ({ path, text: readFileSync(join(ROOT, path), 'utf8') }))
}

/** @throws SyntaxError when the file is no TypeScript. */
export function syntaxTree(file: SourceFile): SyntaxNode {
  const { program, errors } = parseSync(file.path, file.text)
  if (errors.length > 0) throw new SyntaxError(`${file.path}: ${errors[0]?.message}`)
  return program as unknown as SyntaxNode
}

/** Calls `visit` for every node, outermost first. */
export function walk(node: SyntaxNode, visit: (node: SyntaxNode) => void): void {
  const step = (value: unknown): void => {
    if (Array.isArray(value)) for (const item of value) step(item)
    else if (isNode(value)) {
      visit(value)
      for (const child of Object.values(value)) step(child)
    }
  }
  step(node)
}

function isNode(value: unknown): value is SyntaxNode {
  return value !== null && typeof value === 'object' && typeof (value as SyntaxNode).type === 'string'
}

/** 1-based line of a position. */
export function lineAt(text: string, position: number): number {
  let line = 1
  for (let i = text.indexOf('\n'); i >= 0 && i < position; i = text.indexOf('\n', i + 1)) line += 1
  return line
}

/** Relative imports as paths from the root, packages by their names; re-exports and dynamic imports included. */
export function importsOf(file: SourceFile): string[] {
  const found: string[] = []
  walk(syntaxTree(file), (node) => {
    if (!/^(Import|Export\w*)(Declaration|Expression)$/.test(node.type)) return
    const source = node.source as { value?: unknown } | null | undefined
    if (typeof source?.value !== 'string') return
    const relative = source.value.startsWith('.')
    found.push(relative ? posix.join(posix.dirname(file.path), source.value) : source.value)
  })
  return found
}
