// What each flag is set to, and by whom: the command line before the environment, that before the default. Values are
// checked here by their kind; what they mean together is src/config/options.ts.
import { FlanneletteError } from '../errors.ts'
import { FLAGS, type Flag, flagOf, variableOf } from './flag-table.ts'
import { nearest } from './nearest-word.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** Values of the command line by flag name, in their order. */
export type GivenFlags = ReadonlyMap<string, readonly string[]>

/** One value and how a person said it: `--workers 4`, `FLANNELD_IFACE=eth1`. */
export interface SaidValue {
  readonly text: string
  readonly said: string
}

export interface FlagSetting {
  readonly flag: Flag
  readonly origin: 'flag' | 'environment' | 'default'
  /** The name of the flag or variable that decided, or `default`. */
  readonly source: string
  /** Empty when there is none; several only for a list. */
  readonly values: readonly SaidValue[]
}

export class FlagValues {
  readonly settings: readonly FlagSetting[]
  /** What a person should read once. */
  readonly notices: readonly string[]

  /** @throws FlanneletteError `usage` naming flag or variable of a value that will not do */
  constructor(given: GivenFlags, environment: Environment) {
    const notices = strangers(environment)
    this.settings = FLAGS.map((flag) => settle(flag, given.get(flag.name), environment, notices))
    for (const setting of this.settings) {
      for (const value of setting.values) check(setting.flag, value)
      refuseKubernetes(setting)
      if (setting.flag.effect === 'none' && setting.values.length > 0) notices.push(`${setting.source} has no effect`)
    }
    this.notices = notices
  }

  list(name: string): readonly SaidValue[] {
    return this.#setting(name).values
  }

  /** The last value, `null` without one. */
  said(name: string): SaidValue | null {
    return this.list(name).at(-1) ?? null
  }

  /** The flag or variable that decided. */
  source(name: string): string {
    const { source, origin } = this.#setting(name)
    return origin === 'default' ? `--${name}` : source
  }

  /** Empty without a value. */
  text(name: string): string {
    return this.said(name)?.text ?? ''
  }

  boolean(name: string): boolean {
    return readBoolean(this.text(name)) === true
  }

  integer(name: string): number {
    return Number(this.text(name))
  }

  /** `Choice` is the union of the flag's choices. */
  choice<Choice extends string>(name: string): Choice {
    return this.text(name) as Choice
  }

  #setting(name: string): FlagSetting {
    const setting = this.settings.find(({ flag }) => flag.name === name)
    if (setting === undefined) throw new Error(`no flag ${name}`)
    return setting
  }
}

/** The values as `config show` prints them; a password, also one inside a URL, is not. */
export function shownValues({ flag, values }: FlagSetting): string[] {
  return values.map(({ text }) => (flag.secret ? '********' : text.replace(/(:\/\/)[^/@,]*@/g, '$1********@')))
}

function settle(flag: Flag, given: readonly string[] | undefined, environment: Environment, notices: string[]) {
  if (given !== undefined) {
    const source = `--${flag.name}`
    const said = given.map((text) => ({ text, said: `${source} ${flag.secret ? '********' : text}` }))
    return setting(flag, 'flag', source, flag.kind === 'list' ? said : said.slice(-1))
  }
  const ours = variableOf('FLANNELLETTE', flag.name)
  const theirs = flag.from === 'flannel' ? variableOf('FLANNELD', flag.name) : null
  const set = [ours, theirs].filter((name) => name !== null && (environment[name] ?? '') !== '') as string[]
  const source = set[0]
  if (source === undefined) {
    return setting(flag, 'default', 'default', [{ text: flag.default, said: `--${flag.name} ${flag.default}` }])
  }
  if (set.length > 1) notices.push(`${ours} and ${theirs} are both set: ${ours} counts`)
  const text = environment[source] ?? ''
  return setting(flag, 'environment', source, [{ text, said: `${source}=${flag.secret ? '********' : text}` }])
}

/** An empty word is no value where text is asked for: units pass variables that may be empty. */
function setting(flag: Flag, origin: FlagSetting['origin'], source: string, said: readonly SaidValue[]): FlagSetting {
  const mayBeEmpty = flag.kind === 'text' || flag.kind === 'list'
  return { flag, origin, source, values: mayBeEmpty ? said.filter(({ text }) => text !== '') : said }
}

function check(flag: Flag, { text, said }: SaidValue): void {
  if (flag.kind === 'boolean' && readBoolean(text) === null) throw wrong(said, 'is neither true nor false', 'give one')
  if (flag.kind === 'choice' && !flag.choices.includes(text)) {
    throw wrong(said, 'is no choice', `choose one of ${flag.choices.join(', ')}`)
  }
  if (flag.kind === 'integer') {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN
    const remedy = `give ${flag.counts} from ${flag.least} to ${flag.most}`
    if (!(value >= flag.least && value <= flag.most)) throw wrong(said, 'is out of range', remedy)
  }
}

/** Go's strconv.ParseBool. */
function readBoolean(text: string): boolean | null {
  if (/^(1|t|T|true|TRUE|True)$/.test(text)) return true
  return /^(0|f|F|false|FALSE|False)$/.test(text) ? false : null
}

function refuseKubernetes({ flag, source, values }: FlagSetting): void {
  if (flag.effect !== 'kubernetes' || values.length === 0) return
  const same = (text: string) => text === flag.default || String(readBoolean(text)) === flag.default
  if (values.every(({ text }) => same(text))) return
  throw wrong(source, 'is for leases in Kubernetes, which this version does not have', 'use --store etcd or file:DIR')
}

function wrong(said: string, what: string, remedy: string): FlanneletteError {
  return new FlanneletteError('usage', `${said} ${what}`, { remedy })
}

/** What Kubernetes puts into the environment of every pod for a service called flannelette. */
const OF_A_SERVICE = /^FLANNELLETTE_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_\w+)?)$/

/**
 * Variables with our name that set nothing, and those with flannel's that are nearly one of its flags: other programs of
 * flannel's read more of them.
 */
function strangers(environment: Environment): string[] {
  const ours = FLAGS.map(({ name }) => variableOf('FLANNELLETTE', name))
  const theirs = FLAGS.filter(({ from }) => from === 'flannel').map(({ name }) => variableOf('FLANNELD', name))
  const meant = (close: string | null) => (close === null ? '' : `: ${close} is meant?`)
  return Object.keys(environment).flatMap((name) => {
    if (ours.includes(name) || theirs.includes(name) || OF_A_SERVICE.test(name)) return []
    if (name.startsWith('FLANNELLETTE_')) return [`${name} sets nothing${meant(nearest(name, ours))}`]
    const close = name.startsWith(THEIR_PREFIX) ? nearest(withoutPrefix(name), theirs.map(withoutPrefix)) : null
    return close === null ? [] : [`${name} sets nothing${meant(THEIR_PREFIX + close)}`]
  })
}

const THEIR_PREFIX = 'FLANNELD_'
const withoutPrefix = (name: string) => name.slice(THEIR_PREFIX.length)

/** What a program inherits that shall do as its command line says. */
export function withoutFlagVariables(environment: Environment): Record<string, string | undefined> {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => !/^FLANNEL(D|LETTE)_/.test(name)))
}

/**
 * Words as Go's flag package takes them, in commander's form: one or two dashes, values behind `=` or as the next word.
 * @throws FlanneletteError `usage` for a boolean whose value stands apart, which Go takes for the end of all flags
 */
export function goWords(words: readonly string[]): string[] {
  const out: string[] = []
  for (let i = 0; i < words.length; i++) {
    const word = words[i]!
    const [, name, value] = /^--?([A-Za-z][\w-]*)(?:=([\s\S]*))?$/.exec(word) ?? []
    if (word === '--') return [...out, ...words.slice(i)]
    const flag = name === undefined ? undefined : flagOf(name)
    if (name === undefined) out.push(word)
    else if (flag === undefined)
      out.push(name.length > 1 ? `--${name}` : `-${name}`, ...(value === undefined ? [] : [value]))
    else if (value !== undefined) out.push(`--${name}=${value}`)
    else if (flag.kind === 'boolean') out.push(`--${name}=${bareBoolean(name, words[i + 1])}`)
    else if (name === 'v' && !/^\d+$/.test(words[i + 1] ?? '')) out.push('--v=1')
    else if (i + 1 < words.length) out.push(`--${name}=${words[++i]}`)
    else out.push(`--${name}`)
  }
  return out
}

function bareBoolean(name: string, next: string | undefined): string {
  if (next !== undefined && readBoolean(next) !== null) {
    const remedy = `write --${name}=${next}`
    throw new FlanneletteError('usage', `--${name} takes its value behind an equals sign`, { remedy })
  }
  return 'true'
}
