// Numbers with their noun, for people.

/** `1 host`, `3 hosts`. `what`: a noun with a plain plural. */
export function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`
}
