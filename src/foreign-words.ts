// Words that somebody else wrote (into the store, a config, a file), before they stand in a line for people: one line,
// no character that a terminal obeys, and no more of it than anybody reads.

/**
 * What a terminal obeys or shows at another place: control characters (C0, DEL, C1), line and paragraph separators, and
 * the marks that turn the direction of writing (Unicode, UAX #9).
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
const OBEYED = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g

/** The text with what a terminal would obey written out: `\x1b`, `\u202e`; a line feed becomes a blank. */
export function withoutControls(text: string): string {
  return text.replace(OBEYED, (character) => {
    if (character === '\n') return ' '
    const code = character.charCodeAt(0).toString(16)
    return code.length <= 2 ? `\\x${code.padStart(2, '0')}` : `\\u${code}`
  })
}

/** The same, cut to `most` characters. */
export function foreignWords(text: string, most = 80): string {
  const words = withoutControls(text.slice(0, most + 1))
  return words.length <= most ? words : `${words.slice(0, most)}…`
}
