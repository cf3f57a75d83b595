// Takes secrets out of text before it is logged or leaves the host: values of flags, variables and config keys whose
// names speak of secrets, credentials in URLs, bearer tokens, JSON web tokens and private keys. Paths of key files stay:
// they tell where a key is, not what it is.

export const MASK = '‹masked›'

/** The end of a name whose value is a secret. `keyfile` and the like are paths and end otherwise. */
const SECRET_NAME =
  '[\\w.-]*(?:password|passwd|passphrase|secret|token|api[-_]?key|private[-_]?key|preshared[-_]?key|psk|credentials?|key[-_]data|auth)'
/** A value: quoted (also inside a quoted text, with backslashes), or up to the next blank or quote. */
const VALUE = `((?<escape>\\\\+)"[^\\n]*?(?:(?<!\\\\)\\k<escape>"|(?=\\n|$))|"(?:[^"\\\\\\n]|\\\\.)*"|'[^'\\n]*'|[^\\s"']+)`

const RULES: readonly (readonly [RegExp, string])[] = [
  [/-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)/g, MASK],
  // https://user:password@host, up to the last @ of the word: a password may hold what a URL should have encoded
  [/(\b[a-z][a-z0-9+.-]*:\/\/[^\s/:@"']*:)[^\s"']+@/gi, `$1${MASK}@`],
  // https://token@host
  [/(\b[a-z][a-z0-9+.-]*:\/\/)[^\s/:@"']+@/gi, `$1${MASK}@`],
  // --user name:password, as etcdctl and curl have it
  [/((?:--user|-u|\bETCDCTL_USER)[\s=]+["']?[^\s:"']+:)[^\s"']+/g, `$1${MASK}`],
  [/\b(Bearer|Basic)\s+[\w.~+/=-]+/gi, `$1 ${MASK}`],
  [/\beyJ[\w-]+\.[\w-]+\.[\w-]*/g, MASK],
  // Environment="FLANNELD_ETCD_PASSWORD=two words", also with a flag inside the quotes
  [new RegExp(`"((?:--?)?${SECRET_NAME})=(?:[^"\\\\\\n]|\\\\.)*"`, 'gi'), `"$1=${MASK}"`],
  [new RegExp(`'((?:--?)?${SECRET_NAME})=[^'\\n]*'`, 'gi'), `'$1=${MASK}'`],
  // --etcd-password word, -token word (a word of its own behind the flag)
  [new RegExp(`(^|[\\s"'])(--?${SECRET_NAME})(["']?\\s+)${VALUE}`, 'gim'), `$1$2$3${MASK}`],
  // --etcd-password=word, FLANNELD_ETCD_PASSWORD=word, "password": "word", password: word
  [new RegExp(`(["']?(?<![\\w.-])${SECRET_NAME}(?:\\\\*["'])?\\s*[=:]\\s*)${VALUE}`, 'gi'), `$1${MASK}`],
]

/**
 * Longer than any secret, path or flag that a rule has to find the end of: a lease's value may be a megabyte without a
 * blank, and looking for names in that takes hours.
 */
const LONGEST_WORD = 4096
const LONG_WORD = new RegExp(`(?<![^\\s"'])[^\\s"']{${LONGEST_WORD},}`, 'g')

/** The text without its secrets. Rather masks a word too many than one too few. */
export function maskSecrets(text: string): string {
  const short = text.replace(LONG_WORD, (word) => `‹${word.length} characters left out›`)
  return RULES.reduce((masked, [pattern, replacement]) => masked.replace(pattern, replacement), short)
}

const SECRET_FLAG = new RegExp(`^--?${SECRET_NAME}$`, 'i')
const SECRET_ASSIGNMENT = new RegExp(`^((?:--?)?${SECRET_NAME}=)`, 'i')

/**
 * Words of a command line, or variables of an environment, as one line: word by word, so that no blank or quote inside
 * a secret ends it early.
 */
export function maskWords(words: readonly string[]): string {
  const masked = words.map((word, index) => {
    if (SECRET_FLAG.test(words[index - 1] ?? '')) return MASK
    const assignment = SECRET_ASSIGNMENT.exec(word)?.[1]
    return assignment === undefined ? maskSecrets(word) : assignment + MASK
  })
  return masked.join(' ')
}
