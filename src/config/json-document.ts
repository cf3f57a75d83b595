// JSON as Go's decoder reads it, with positions for people: keys match field names whatever their case, the last of
// several equal keys wins, types are strict. Used for the network config and for lease values.

/** A value with the offset of its first character. A number keeps its text: `24` and `24.0` are not the same to Go. */
export type JsonNode =
  | { readonly kind: 'object'; readonly at: number; readonly members: readonly JsonMember[] }
  | { readonly kind: 'array'; readonly at: number; readonly items: readonly JsonNode[] }
  | { readonly kind: 'string'; readonly at: number; readonly text: string }
  | { readonly kind: 'number'; readonly at: number; readonly text: string }
  | { readonly kind: 'boolean'; readonly at: number; readonly value: boolean }
  | { readonly kind: 'null'; readonly at: number }

export interface JsonMember {
  readonly key: string
  /** Offset of the key. */
  readonly at: number
  readonly value: JsonNode
}

/** As people count: from 1. */
export interface TextPosition {
  readonly line: number
  readonly column: number
}

/** A document that cannot be read, with the position and, where one is to blame, the field. */
export class JsonProblem extends Error {
  readonly sentence: string
  readonly field: string
  readonly position: TextPosition

  constructor(sentence: string, source: string, at: number, field = '') {
    const position = positionOf(source, at)
    super(`line ${position.line}, column ${position.column}: ${sentence}`)
    this.name = 'JsonProblem'
    this.sentence = sentence
    this.field = field
    this.position = position
  }
}

/** Where an offset is, for people. */
export function positionOf(source: string, at: number): TextPosition {
  const before = source.slice(0, at).split('\n')
  return { line: before.length, column: (before.at(-1)?.length ?? 0) + 1 }
}

/** Deeper nesting is refused: nobody writes it, and a stack overflow is no message. */
const MAX_DEPTH = 200

/** Parses a whole document, RFC 8259. @throws JsonProblem */
export function parseJson(source: string): JsonNode {
  const scanner = new Scanner(source)
  const node = scanner.value(0)
  scanner.end()
  return node
}

/** The member whose key equals `name` but for case; the last one where there are several; `undefined` without any. */
export function memberOf(node: JsonNode, name: string): JsonNode | undefined {
  if (node.kind !== 'object') return undefined
  const wanted = name.toLowerCase()
  const isIt = ({ key }: JsonMember) => key.length === wanted.length && key.toLowerCase() === wanted
  return node.members.findLast(isIt)?.value
}

/** The plain JavaScript value, with keys as they were written. */
export function toPlain(node: JsonNode): unknown {
  switch (node.kind) {
    case 'object': {
      const entries = node.members.map((member) => [member.key, toPlain(member.value)])
      return Object.fromEntries(entries)
    }
    case 'array':
      return node.items.map(toPlain)
    case 'string':
      return node.text
    case 'number':
      return Number(node.text)
    case 'boolean':
      return node.value
    default:
      return null
  }
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y
const STRING = /"(?:[^"\\]|\\[\s\S])*"/y
const SPACE = /[ \t\n\r]*/y

class Scanner {
  readonly #source: string
  #at = 0

  constructor(source: string) {
    this.#source = source
  }

  value(depth: number): JsonNode {
    this.#skipSpace()
    if (depth > MAX_DEPTH) throw this.#problem('nested too deeply')
    const at = this.#at
    const first = this.#source[at]
    if (first === '{') return { kind: 'object', at, members: this.#list('{', '}', () => this.#member(depth)) }
    if (first === '[') return { kind: 'array', at, items: this.#list('[', ']', () => this.value(depth + 1)) }
    if (first === '"') return { kind: 'string', at, text: this.#string() }
    for (const [word, node] of LITERALS) {
      if (this.#source.startsWith(word, at)) {
        this.#at += word.length
        return { ...node, at }
      }
    }
    const text = this.#match(NUMBER)
    if (text === undefined) throw this.#problem('expected a value')
    return { kind: 'number', at, text }
  }

  end(): void {
    this.#skipSpace()
    if (this.#at < this.#source.length) throw this.#problem('something follows the end of the document')
  }

  #member(depth: number): JsonMember {
    this.#skipSpace()
    if (this.#source[this.#at] !== '"') throw this.#problem('expected a key in double quotes')
    const at = this.#at
    const key = this.#string()
    this.#expect(':')
    return { key, at, value: this.value(depth + 1) }
  }

  #list<T>(open: string, close: string, item: () => T): T[] {
    this.#expect(open)
    const items: T[] = []
    this.#skipSpace()
    if (this.#source[this.#at] === close) {
      this.#at++
      return items
    }
    for (;;) {
      items.push(item())
      this.#skipSpace()
      if (this.#source[this.#at] === close) break
      if (this.#source[this.#at] !== ',') throw this.#problem(`expected "," or "${close}"`)
      this.#at++
    }
    this.#at++
    return items
  }

  #string(): string {
    const at = this.#at
    const text = this.#match(STRING)
    if (text === undefined) throw this.#problem('a string that does not end')
    try {
      return JSON.parse(text) as string
    } catch {
      throw new JsonProblem('a string with an unknown escape or a control character', this.#source, at)
    }
  }

  #expect(character: string): void {
    this.#skipSpace()
    if (this.#source[this.#at] !== character) throw this.#problem(`expected "${character}"`)
    this.#at++
  }

  #skipSpace(): void {
    this.#match(SPACE)
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at
    const text = pattern.exec(this.#source)?.[0]
    this.#at += text?.length ?? 0
    return text
  }

  #problem(message: string): JsonProblem {
    const ended = this.#at >= this.#source.length
    return new JsonProblem(ended ? `the document ends here: ${message}` : message, this.#source, this.#at)
  }
}

const LITERALS = [
  ['true', { kind: 'boolean', value: true }],
  ['false', { kind: 'boolean', value: false }],
  ['null', { kind: 'null' }],
] as const
