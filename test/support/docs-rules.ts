// Docs in step with the code: the drop-reason section of docs/troubleshooting.md, npm scripts, links, error codes.
import { existsSync } from 'node:fs'
import { join, posix } from 'node:path'
import { DROP_REASONS } from '../../dataplane/drop-reason.ts'
import { ROOT, type SourceFile } from './source-tree.ts'

const WHERE_IN_WORDS = {
  outbound: 'Outbound: a pod sent it, and it did not leave this node',
  inbound: 'Inbound: it came from the underlay, and no pod got it',
  both: 'Either way',
} as const

/** Where packets are counted: what the kernel lost in front of the engine is counted by the daemon's dataplane. */
const COUNTS_PACKETS = /^dataplane\/|^src\/daemon\/(userspace-dataplane|worker-books)\.ts$/

const DROP_SECTION = { begin: '<!-- drop reasons: begin -->', end: '<!-- drop reasons: end -->' } as const

/** The part of docs/troubleshooting.md that lists every drop reason, from the table in the code. */
export function dropReasonSection(reasons: Readonly<Record<string, { where: string; about: string }>>): string {
  const parts = Object.entries(WHERE_IN_WORDS).map(([where, title]) => {
    const rows = Object.entries(reasons)
      .filter(([, reason]) => reason.where === where)
      .map(([name, { about }]) => `| <a id="${name}"></a>\`${name}\` | ${about.replaceAll('|', '\\|')} |`)
    return [`### ${title}`, '', '| reason | what happened |', '|---|---|', ...rows].join('\n')
  })
  return [DROP_SECTION.begin, '', parts.join('\n\n'), '', DROP_SECTION.end].join('\n')
}

/** The text with its drop-reason section replaced by what the code says now. */
export function withDropReasons(text: string): string {
  const from = text.indexOf(DROP_SECTION.begin)
  const to = text.indexOf(DROP_SECTION.end)
  if (from < 0 || to < from) throw new Error('docs/troubleshooting.md has lost the marks of its drop-reason section')
  return text.slice(0, from) + dropReasonSection(DROP_REASONS) + text.slice(to + DROP_SECTION.end.length)
}

/** The codes of `ErrorCode` in the text of src/errors.ts. */
export function errorCodes(text: string): string[] {
  const [, union] = /export type ErrorCode =\n((?: {2}\| '[\w-]+'\n)+)/.exec(text) ?? []
  return [...(union ?? '').matchAll(/'([\w-]+)'/g)].map((match) => match[1] ?? '')
}

/**
 * Drop reasons that no line ever names, other than their table: neither the engine nor whoever counts the kernel's
 * losses.
 */
export function unusedDropReasons(names: readonly string[], files: readonly SourceFile[]): string[] {
  const code = files.filter(({ path }) => COUNTS_PACKETS.test(path) && path !== 'dataplane/drop-reason.ts')
  return names.filter((name) => !code.some(({ text }) => text.includes(`'${name}'`) || text.includes(`.${name}'`)))
}

/** `npm run X` in a document must be a script of package.json; npm's own words (`ci`, `install`) are left alone. */
export function unknownScripts(files: readonly SourceFile[], scripts: readonly string[]): string[] {
  return documents(files).flatMap(({ path, text }) =>
    [...text.matchAll(/\bnpm (?:run (?:--silent )?([\w:-]+)|(test))\b/g)]
      .map((match) => match[1] ?? match[2] ?? '')
      .filter((script) => !scripts.includes(script))
      .map((script) => `${path}: npm run ${script}`),
  )
}

const LINK = /\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)/g

/** Relative links of documents that lead nowhere: to no file, or to no heading or `<a id>` of a document. */
export function deadLinks(files: readonly SourceFile[]): string[] {
  const anchors = new Map(documents(files).map(({ path, text }) => [path, anchorsOf(text)]))
  return documents(files).flatMap(({ path, text }) =>
    [...text.matchAll(LINK)]
      .map(([, target = '', anchor]) => ({
        target: target === '' ? path : posix.join(posix.dirname(path), target),
        anchor,
      }))
      .filter(({ target, anchor }) =>
        anchor === undefined
          ? !anchors.has(target) && !existsSync(join(ROOT, target))
          : anchors.get(target)?.has(anchor) !== true,
      )
      .map(({ target, anchor }) => `${path}: ${target}${anchor === undefined ? '' : `#${anchor}`}`),
  )
}

/** What a link into a document may name: `<a id>`, and headings in the spelling that web views of repositories give them. */
function anchorsOf(text: string): ReadonlySet<string> {
  const prose = text.replace(/^```[\s\S]*?^```/gm, '')
  const headings = [...prose.matchAll(/^#+ (.*)$/gm)].map(([, heading = '']) =>
    heading
      .trim()
      .toLowerCase()
      .replace(/[^\p{L}\p{N}_ -]/gu, '')
      .replaceAll(' ', '-'),
  )
  return new Set([...headings, ...[...prose.matchAll(/<a id="([^"]+)">/g)].map(([, id = '']) => id)])
}

function documents(files: readonly SourceFile[]): SourceFile[] {
  return files.filter(({ path }) => path.endsWith('.md'))
}
