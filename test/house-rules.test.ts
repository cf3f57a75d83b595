// Rules about the source itself. Each is shown a planted violation first, so that none of them can be blind.
import { describe, expect, test } from 'vitest'
import { DROP_REASON_NAMES } from '../dataplane/drop-reason.ts'
import {
  deadLinks,
  dropReasonSection,
  errorCodes,
  unknownScripts,
  unusedDropReasons,
  withDropReasons,
} from './support/docs-rules.ts'
import {
  aNameStandsForOneThing,
  filesAreShort,
  filesOpenWithAComment,
  functionsAreShort,
  importsPointOneWay,
  namesSayWhatIsInside,
  noPathOfOneMachine,
  offsetsLiveInWire,
  type Rule,
  testsAreNotSwitchedOff,
} from './support/house-rules.ts'
import { projectFiles, type SourceFile } from './support/source-tree.ts'

const FILES = projectFiles()
const textOf = (path: string): string => FILES.find((file) => file.path === path)?.text ?? ''
const file = (path: string, ...lines: string[]): SourceFile => ({ path, text: `${lines.join('\n')}\n` })
const lines = (count: number): string[] => Array.from({ length: count }, () => '  call()')
const imports = (from: string, specifier: string): SourceFile => file(from, `import { a } from '${specifier}'`)

/** Runs `rule` over what it must refuse, over what it must let pass, and over the project. */
function holds(name: string, rule: Rule, planted: readonly SourceFile[], innocent: readonly SourceFile[]): void {
  describe(name, () => {
    test.each(planted.map((one) => [one.path, one] as const))('finds what was planted in %s', (_, one) => {
      expect(rule([one])).toHaveLength(1)
    })
    test('lets pass what is right', () => {
      expect(innocent.flatMap((one) => rule([one]))).toEqual([])
    })
    test('holds in the project', () => {
      expect(rule(FILES)).toEqual([])
    })
  })
}

holds(
  'a file stays below 400 lines',
  filesAreShort,
  [file('src/long.ts', ...lines(400)), file('test/support/long.sh', ...lines(400))],
  [file('src/short.ts', ...lines(399)), file('docs/long.md', ...lines(500))],
)

holds(
  'a function stays below 60 lines',
  functionsAreShort,
  [
    file('src/declared.ts', 'export function f(): void {', ...lines(58), '}'),
    file('src/arrow.ts', 'export const f = () => {', ...lines(58), '}'),
    file('src/method.ts', 'class A {', '  get #f() {', ...lines(58), '  }', '}'),
    file('test/a.test.ts', "test('x', () => {", ...lines(58), '})'),
    file('test/b.test.ts', 'function build() {', ...lines(58), '}'),
    file('src/tricky.ts', 'const f = (a = /[}]/) => {', "  '}'; `{`", ...lines(57), '}'),
  ],
  [
    file('src/declared.ts', 'export function f(): void {', ...lines(57), '}'),
    file('test/a.test.ts', "describe('x', () => {", '  const a = 1', ...lines(80), '})'),
    file('test/compliance/a.ts', 'function rules() {', ...Array(80).fill("  test.each([1])('y', () => {})"), '}'),
    file('src/table.ts', 'const table = [', ...lines(80).map(() => '  1,'), ']'),
  ],
)

holds(
  'a file opens with what it is',
  filesOpenWithAComment,
  [file('src/a.ts', 'export const a = 1'), file('test/support/a.mjs', '#!/usr/bin/env node', 'a()')],
  [
    file('src/a.ts', '// What a is.', 'export const a = 1'),
    file('src/main.ts', '#!/usr/bin/env node', '// What it is.'),
  ],
)

holds(
  'a name says what is inside',
  namesSayWhatIsInside,
  [file('src/utils.ts'), file('src/helper/a.ts'), file('dataplane/types.ts'), file('src/common/a.ts')],
  [file('src/clock.ts'), file('src/commons.ts')],
)

describe('an exported name stands for one thing', () => {
  const road = file('src/road.ts', 'export interface Way {}', 'export const a = 1, b = 2')

  test.each([
    file('src/lane.ts', 'export type Way = number'),
    file('src/lane.ts', 'export class Way {}'),
    file('src/lane.ts', 'export function b() {}'),
    file('src/lane.ts', 'export const b = 3'),
  ])('finds $text beside another one', (planted) => {
    expect(aNameStandsForOneThing([road, planted])).toHaveLength(1)
  })

  test('lets pass what is right', () => {
    const passedOn = file('src/index.ts', "export { a } from './road.ts'", "export type { Way } from './road.ts'")
    const overloaded = file('src/c.ts', 'export function c(x: 1): void', 'export function c(): void {}', 'const b = 1')
    const wire = ['udp', 'tcp'].map((name) => file(`dataplane/wire/${name}.ts`, 'export function parse() {}'))
    const otherSide = file('dataplane/way.ts', 'export interface Way {}')
    expect(aNameStandsForOneThing([road, passedOn, overloaded, otherSide, ...wire])).toEqual([])
  })

  test('holds in the project', () => {
    expect(aNameStandsForOneThing(FILES)).toEqual([])
  })
})

holds(
  'imports point one way',
  importsPointOneWay,
  [
    imports('dataplane/wire/udp.ts', '../engine/engine.ts'),
    imports('dataplane/forwarding/table.ts', '../encap/vxlan.ts'),
    imports('dataplane/encap/vxlan.ts', '../engine/outbound.ts'),
    imports('dataplane/engine/engine.ts', '../worker/worker-main.ts'),
    imports('dataplane/io/memory/link.ts', '../../engine/engine.ts'),
    imports('dataplane/middleware/fault-injector.ts', '../engine/engine.ts'),
    imports('dataplane/engine/engine.ts', '../../src/log.ts'),
    imports('dataplane/engine/engine.ts', 'pino'),
    imports('dataplane/engine/engine.ts', 'koffi'),
    imports('src/cli/run.ts', '../../dataplane/engine/engine.ts'),
    imports('src/cli/run.ts', '../store/file.ts'),
    imports('src/host/overlay-link.ts', '../daemon/daemon.ts'),
    imports('src/config/flag-table.ts', '../daemon/state-directory.ts'),
    imports('src/daemon/health.ts', '../doctor/facts.ts'),
    imports('src/cli/run.ts', '../../test/support/builders.ts'),
    file('src/cli/lazy.ts', "const a = await import('../../dataplane/wire/udp.ts')"),
    file('dataplane/wire/again.ts', "export * from '../engine/engine.ts'"),
  ],
  [
    imports('dataplane/engine/engine.ts', '../wire/udp.ts'),
    imports('dataplane/io/linux/libc.ts', 'koffi'),
    imports('src/daemon/daemon.ts', '../store/file.ts'),
    imports('src/cli/run.ts', '../../dataplane/index.ts'),
    imports('test/dataplane/engine/engine.test.ts', '../../../dataplane/engine/engine.ts'),
    file('src/words.ts', 'const text = \'import { a } from "../../dataplane/engine/engine.ts"\''),
  ],
)

holds(
  'header offsets live in wire files',
  offsetsLiveInWire,
  [
    file('dataplane/engine/a.ts', 'const ttl = view.getUint8(at + 8)'),
    file('dataplane/encap/a.ts', 'this.#view.setUint16(at + IPV4_AT + 4, 1)'),
    file('src/trace/a.ts', 'const vni = bytes[at + 4]'),
    file('dataplane/engine/b.ts', 'bytes[9] = 17'),
  ],
  [
    file('dataplane/engine/a.ts', 'const ttl = readTtl(view, at); cells[at + 3] = bytes[at]'),
    file('dataplane/wire/ipv4.ts', 'const ttl = view.getUint8(at + 8)'),
  ],
)

holds(
  'no test is switched off',
  testsAreNotSwitchedOff,
  ['skip', 'only', 'todo', 'skip.each([1])', 'skipIf(true)', 'runIf(false)']
    .flatMap((verb) => ['it', 'test', 'describe'].map((base) => `${base}.${verb}('x', () => {})`))
    .concat("test['skip']('x', () => {})", "test('x', (context) => { context.skip() })")
    .map((line) => file('test/a.test.ts', line)),
  [file('test/a.test.ts', "test.each([1])('skip', (context) => { context.skip('no vxlan module') })")],
)

holds(
  'no path of one machine',
  noPathOfOneMachine,
  [file('docs/a.md', `cd ${['', 'work', 'main'].join('/')}`), file('src/a.ts', `// ${['', 'home', 'me'].join('/')}`)],
  [file('src/a.ts', "const path = '/var/lib/flannelette' // see docs/work/a.md")],
)

describe('docs are in step', () => {
  const troubleshooting = textOf('docs/troubleshooting.md')

  test('the drop reasons in docs/troubleshooting.md are those of the code', async () => {
    // `npm run vitest -- run test/house-rules.test.ts -u` writes the section anew.
    await expect(withDropReasons(troubleshooting)).toMatchFileSnapshot('../docs/troubleshooting.md')
    for (const name of DROP_REASON_NAMES) expect(troubleshooting).toContain(`<a id="${name}"></a>`)
  })

  test('a drop reason that is missing, or worded otherwise, is noticed', () => {
    const reasons = { 'no-route': { where: 'outbound', about: 'nobody holds it' } }
    expect(dropReasonSection(reasons)).toContain('`no-route` | nobody holds it')
    expect(withDropReasons(troubleshooting.replace(/.*`vni-unknown`.*\n/, ''))).not.toBe(
      troubleshooting.replace(/.*`vni-unknown`.*\n/, ''),
    )
  })

  test('every drop reason is used by the dataplane', () => {
    expect(unusedDropReasons(['planted-reason'], FILES)).toEqual(['planted-reason'])
    expect(unusedDropReasons(DROP_REASON_NAMES, FILES)).toEqual([])
  })

  test('every error code has its line in docs/troubleshooting.md', () => {
    const codes = errorCodes(textOf('src/errors.ts'))
    expect(codes).toContain('tun-unavailable')
    expect([...codes, 'planted'].filter((code) => !troubleshooting.includes(`\n| \`${code}\` | `))).toEqual(['planted'])
  })

  test('npm scripts named in docs exist', () => {
    const { scripts } = JSON.parse(textOf('package.json')) as { scripts: Record<string, string> }
    expect(unknownScripts([file('docs/a.md', '`npm run planted`, npm test, npm ci')], ['test'])).toHaveLength(1)
    expect(unknownScripts(FILES, Object.keys(scripts))).toEqual([])
  })

  test('links between documents lead somewhere', () => {
    const target = file('docs/b.md', '# Why `so`?', '<a id="id"></a>')
    const good = '[z](https://example.net#z) [b](b.md) [heading](b.md#why-so) [id](b.md#id) [self](#here)\n## Here'
    expect(deadLinks([file('docs/a.md', good), target])).toEqual([])
    const bad = '[x](planted.md) [x](planted.md#y) [x](b.md#planted) [self](#planted)'
    expect(deadLinks([file('docs/a.md', bad), target])).toHaveLength(4)
    expect(deadLinks(FILES)).toEqual([])
  })
})
