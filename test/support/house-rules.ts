// The house rules as functions from files to complaints, so that each can be shown a planted violation.
// docs/contributing.md tells the same rules to people.
import { importsOf, lineAt, type SourceFile, type SyntaxNode, syntaxTree, walk } from './source-tree.ts'

export type Rule = (files: readonly SourceFile[]) => string[]

const MAX_FILE_LINES = 399
const MAX_FUNCTION_LINES = 59

const isCode = ({ path }: SourceFile): boolean => /\.(ts|mjs|cjs)$/.test(path)
const isParsed = (file: SourceFile): boolean => isCode(file) && !file.path.endsWith('.as.ts')
const isTest = ({ path }: SourceFile): boolean => path.startsWith('test/')

function eachNode(
  files: readonly SourceFile[],
  complain: (node: SyntaxNode, file: SourceFile) => string | undefined,
): string[] {
  const found: string[] = []
  for (const file of files) {
    walk(syntaxTree(file), (node) => {
      const complaint = complain(node, file)
      if (complaint !== undefined) found.push(`${file.path}:${lineAt(file.text, node.start)}: ${complaint}`)
    })
  }
  return found
}

export const filesAreShort: Rule = (files) =>
  files
    .filter((file) => isCode(file) || file.path.endsWith('.sh'))
    .map((file) => ({ file, lines: file.text.trimEnd().split('\n').length }))
    .filter(({ lines }) => lines > MAX_FILE_LINES)
    .map(({ file, lines }) => `${file.path}: ${lines} lines`)

/**
 * What groups tests is no function that anyone has to understand as one: the callback of a `describe`, and a function
 * of a test file that calls nothing but `describe` and `test`.
 */
export const functionsAreShort: Rule = (files) => {
  const groups = new Set<unknown>()
  return eachNode(files.filter(isParsed), (node, file) => {
    if (isTest(file) && node.type === 'CallExpression' && firstName(node) === 'describe') {
      for (const argument of node.arguments as SyntaxNode[]) groups.add(argument)
    }
    if (!/^(FunctionDeclaration|FunctionExpression|ArrowFunctionExpression)$/.test(node.type)) return undefined
    if (groups.has(node) || (isTest(file) && onlyGroupsTests(node))) return undefined
    const lines = lineAt(file.text, node.end) - lineAt(file.text, node.start) + 1
    return lines > MAX_FUNCTION_LINES ? `a function of ${lines} lines` : undefined
  })
}

function onlyGroupsTests(node: SyntaxNode): boolean {
  const body = node.body as SyntaxNode
  if (body.type !== 'BlockStatement') return false
  return (body.body as SyntaxNode[]).every((statement) => {
    const expression = statement.type === 'ExpressionStatement' ? (statement.expression as SyntaxNode) : null
    return expression?.type === 'CallExpression' && /^(describe|test|it)$/.test(firstName(expression))
  })
}

export const filesOpenWithAComment: Rule = (files) =>
  files
    .filter(isCode)
    .filter(({ text }) => !/^(#!.*\n)?(\/\/|\/\*)/.test(text))
    .map(({ path }) => `${path}: does not open with what it is and where it sits`)

export const namesSayWhatIsInside: Rule = (files) =>
  files
    .filter(({ path }) => /(^|\/)(utils?|helpers?|common|types|misc)(\.|\/)/.test(path))
    .map(({ path }) => `${path}: a name that says nothing`)

/** Wire files are alike on purpose: `parse`, `emit`, `FIELDS`. */
const SHARES_NAMES = /^dataplane\/wire\//
const DECLARES = /^(Class|Function|TSInterface|TSTypeAlias|Variable)Declaration$/

/** `src` and `dataplane` are counted apart: they see each other through dataplane/index.ts alone. */
export const aNameStandsForOneThing: Rule = (files) => {
  const holders = new Map<string, string>()
  const counted = files.filter((file) => /^(src|dataplane)\//.test(file.path) && isParsed(file))
  return counted
    .filter(({ path }) => !SHARES_NAMES.test(path))
    .flatMap((file) =>
      exportsOf(file).flatMap((name) => {
        const key = `${file.path.split('/')[0]} ${name}`
        const holder = holders.get(key) ?? file.path
        holders.set(key, holder)
        return holder === file.path ? [] : [`${file.path}: ${name} is another thing in ${holder}`]
      }),
    )
}

/** Names that a file declares and exports; what it only passes on is declared elsewhere. */
function exportsOf(file: SourceFile): string[] {
  return (syntaxTree(file).body as SyntaxNode[]).flatMap((statement) => {
    const declared = statement.type === 'ExportNamedDeclaration' ? (statement.declaration as SyntaxNode | null) : null
    if (declared === null || !DECLARES.test(declared.type)) return []
    const declarators = declared.type === 'VariableDeclaration' ? (declared.declarations as SyntaxNode[]) : [declared]
    return declarators.map(({ id }) => nameOf(id))
  })
}

/** Which folders of the dataplane each of its folders may import; itself always. */
const DATAPLANE_MAY: Readonly<Record<string, readonly string[]>> = {
  wire: ['drop-reason.ts'],
  memory: [],
  forwarding: ['wire'],
  encap: ['forwarding', 'wire', 'drop-reason.ts'],
  engine: ['encap', 'forwarding', 'wire', 'memory', 'io', 'drop-reason.ts', 'step.ts'],
  io: ['wire', 'memory', 'drop-reason.ts'],
  middleware: ['io', 'memory'],
  worker: ['engine', 'encap', 'forwarding', 'wire', 'memory', 'io', 'middleware', 'drop-reason.ts', 'step.ts'],
  'step.ts': ['forwarding', 'drop-reason.ts'],
  'drop-reason.ts': [],
}
/** Native calls have one place, and besides it only the lock of the file store. */
const MAY_CALL_NATIVE = /^dataplane\/io\/linux\/|^src\/store\/file-lock\.ts$/
const CONCRETE_STORE = /^src\/store\/(etcd|kube|file|memory)(-store)?\.ts$/
const NAMES_STORES = /^src\/(store|daemon\/daemon\.ts$)/
/** What the daemon is made of must not know it, nor it those who look at it. */
const BELOW_DAEMON = /^src\/(config|host|lease|store)\//
const ABOVE_DAEMON = /^src\/(cli|doctor|lab)\//
const DATAPLANE_PACKAGES = /^(node:|koffi$)/

export const importsPointOneWay: Rule = (files) =>
  files
    .filter((file) => /^(src|dataplane|bench)\/.*(?<!\.as)\.ts$/.test(file.path)) // .mjs: a step of the build
    .flatMap((file) =>
      importsOf(file)
        .map((target) => [target, importComplaint(file.path, target)] as const)
        .filter(([, complaint]) => complaint !== undefined)
        .map(([target, complaint]) => `${file.path}: imports ${target}: ${complaint}`),
    )

function importComplaint(from: string, to: string): string | undefined {
  if (to === 'koffi' && !MAY_CALL_NATIVE.test(from)) return 'native code has one place'
  // bench/engine and bench/micro never leave the repository, and need the same packets as the tests.
  if (to.startsWith('test/') && !/^bench\/(engine|micro)\//.test(from)) return 'only tests import from test'
  if (to.startsWith('bench/') && !from.startsWith('bench/')) return 'only benchmarks import from bench'
  if (from.startsWith('src/')) return fromControlPlane(from, to)
  if (from.startsWith('dataplane/')) return fromDataplane(from, to)
  return undefined
}

function fromControlPlane(from: string, to: string): string | undefined {
  if (to.startsWith('dataplane/') && to !== 'dataplane/index.ts')
    return 'src sees dataplane/index.ts and nothing deeper'
  if (BELOW_DAEMON.test(from) && to.startsWith('src/daemon/')) return 'the daemon stands above it'
  if (from.startsWith('src/daemon/') && ABOVE_DAEMON.test(to)) return 'the daemon stands below it'
  if (CONCRETE_STORE.test(to) && !NAMES_STORES.test(from)) return 'only the daemon names a concrete store'
  return undefined
}

function fromDataplane(from: string, to: string): string | undefined {
  if (to.startsWith('src/')) return 'the dataplane knows nothing of the control plane'
  if (!to.startsWith('dataplane/'))
    return DATAPLANE_PACKAGES.test(to) ? undefined : 'no package belongs on the fast path'
  const room = from.split('/')[1] ?? ''
  const other = to.split('/')[1] ?? ''
  if (room === 'index.ts' || room === other || DATAPLANE_MAY[room]?.includes(other)) return undefined
  return `${room} must not know ${other}`
}

/** Header offsets live in dataplane/wire; structures of the kernel in dataplane/io/linux. */
const KNOWS_NO_OFFSET = /^(src|dataplane\/(encap|engine|forwarding|middleware|worker|io\/memory))\//
const ACCESSOR = /^[gs]et(Big)?(Ui|I)nt(8|16|32|64)$/
const BYTES = /^(u8|bytes?|buf|buffer|packet|frame|datagram|view|mem|memory)$/i

export const offsetsLiveInWire: Rule = (files) =>
  eachNode(
    files.filter((file) => isParsed(file) && KNOWS_NO_OFFSET.test(file.path)),
    (node) => {
      const offset = offsetOf(node)
      return offset !== undefined && literalIn(offset) ? 'a literal header offset' : undefined
    },
  )

/** The expression that says where in a byte buffer `node` reads or writes. */
function offsetOf(node: SyntaxNode): SyntaxNode | undefined {
  if (node.type === 'CallExpression') {
    const callee = node.callee as SyntaxNode
    if (callee.type !== 'MemberExpression' || !ACCESSOR.test(nameOf(callee.property))) return undefined
    return (node.arguments as SyntaxNode[])[0]
  }
  if (node.type !== 'MemberExpression' || node.computed !== true) return undefined
  return BYTES.test(nameOf(node.object)) ? (node.property as SyntaxNode) : undefined
}

function literalIn(offset: SyntaxNode): boolean {
  if (offset.type === 'Literal') return typeof offset.value === 'number' && offset.value > 0
  if (offset.type !== 'BinaryExpression' || !['+', '-'].includes(String(offset.operator))) return false
  return [offset.left, offset.right].some((side) => literalIn(side as SyntaxNode))
}

/** The last name of an expression: `b` of `a.b` and of `a['b']`, `#b` without its hash. */
function nameOf(expression: unknown): string {
  const node = expression as SyntaxNode
  if (node.type === 'Literal') return String(node.value)
  if (node.type === 'MemberExpression') return nameOf(node.property)
  return typeof node.name === 'string' ? node.name : ''
}

export const testsAreNotSwitchedOff: Rule = (files) =>
  eachNode(
    files.filter((file) => isParsed(file) && isTest(file)),
    (node) => {
      if (node.type === 'MemberExpression') {
        const words = `${firstName(node)}.${nameOf(node.property)}`
        return /^(it|test|describe)\.(skip|only|todo|skipIf|runIf|fails)$/.test(words) ? words : undefined
      }
      const bare = node.type === 'CallExpression' && (node.arguments as unknown[]).length === 0
      return bare && nameOf(node.callee) === 'skip' ? 'a skip without a reason' : undefined
    },
  )

/** The first name of an expression: `a` of `a.b`, of `a(1)` and of `a.b(1)(2)`. */
function firstName(node: SyntaxNode): string {
  if (node.type === 'CallExpression') return firstName(node.callee as SyntaxNode)
  return node.type === 'MemberExpression' ? firstName(node.object as SyntaxNode) : nameOf(node)
}

/** Paths that exist on one machine only. */
const MACHINE_PATH = /(?<![\w.-])\/(work|home|root|Users)\/[\w.-]/

export const noPathOfOneMachine: Rule = (files) =>
  files.flatMap(({ path, text }) =>
    text
      .split('\n')
      .map((line, i) => (MACHINE_PATH.test(line) ? `${path}:${i + 1}: a path of one machine` : ''))
      .filter((complaint) => complaint !== ''),
  )
