// Takes secrets out of text before it leaves the host: values of flags, variables and config keys whose names speak of
// secrets, credentials in URLs, bearer tokens, JSON web tokens and private keys. Paths of key files stay: they tell where
// a key is, not what it is.

export const MASK = '‹masked›'

/** The end of a name whose value is a secret. `keyfile` and the like are paths and end otherwise. */
const SECRET_NAME =
  '[\\w.-]*(?:password|passwd|passphrase|secret|token|api[-_]?key|private[-_]?key|preshared[-_]?key|psk|credentials?|key[-_]data|auth)'
/** A value: quoted, or up to the next blank or separator. */
const VALUE = `("(?:[^"\\\\]|\\\\.)*"|'[^']*'|[^\\s"',;}]+)`

const RULES: readonly (readonly [RegExp, string])[] = [
  [/-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)/g, MASK],
  // https://user:password@host
  [/(\b[a-z][a-z0-9+.-]*:\/\/[^\s/:@]*:)[^\s/@]+@/gi, `$1${MASK}@`],
  [/\b(Bearer|Basic)\s+[\w.~+/=-]+/gi, `$1 ${MASK}`],
  [/\beyJ[\w-]+\.[\w-]+\.[\w-]*/g, MASK],
  // --etcd-password word, -token word (a word of its own behind the flag)
  [new RegExp(`(^|\\s)(--?${SECRET_NAME})(\\s+)(?!-)${VALUE}`, 'gim'), `$1$2$3${MASK}`],
  // --etcd-password=word, FLANNELD_ETCD_PASSWORD=word, "password": "word", password: word
  [new RegExp(`(["']?${SECRET_NAME}["']?\\s*[=:]\\s*)${VALUE}`, 'gi'), `$1${MASK}`],
]

/** The text without its secrets. Rather masks a word too many than one too few. */
export function maskSecrets(text: string): string {
  return RULES.reduce((masked, [pattern, replacement]) => masked.replace(pattern, replacement), text)
}

/** Words of a command line, masked as one text so that a flag and its value belong together. */
export function maskWords(words: readonly string[]): string {
  return maskSecrets(words.map((word) => (/[\s"']/.test(word) ? JSON.stringify(word) : word)).join(' '))
}
