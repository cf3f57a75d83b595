// What a program printed, as lines that can be compared.

/** Without empty lines; blanks at the ends are gone, and several in a row are one. */
export function linesOf(text: string): string[] {
  return text
    .split('\n')
    .map((line) => line.trim().replace(/\s+/g, ' '))
    .filter(Boolean)
}
