// The note of a daemon that cannot look at its host: health says it, and doctor knows it again.

const UNSEEN = 'device and routes cannot be looked at, and what others change there is not mended'

/** `why`: in one phrase, as Dataplane.unseen has it. */
export function unseenInWords(why: string): string {
  return `${UNSEEN}: ${why}`
}

/** Why the host cannot be looked at, of a note of health that says so; `null` for any other. */
export function whyUnseen(note: string): string | null {
  return note.startsWith(`${UNSEEN}: `) ? note.slice(UNSEEN.length + 2) : null
}
