// The vocabulary of a wire file: a table of fields from which offsets, descriptions and docs are derived.
// Nothing outside `dataplane/wire/` knows an offset.

/** One field of a header. `bit` and `bits` count from the first bit of the header, most significant bit first. */
export interface Field {
  readonly name: string
  readonly bit: number
  readonly bits: number
  readonly about: string
  /** How people write the value; decimal when absent. */
  readonly show?: 'hex' | 'ipv4' | 'mac'
  /** Set where the least significant byte comes first; such a field fills whole bytes. */
  readonly littleEndian?: true
}

/** One line of a description: a field as it stands in some bytes, with what is wrong about it, if anything. */
export interface FieldNote {
  readonly layer: string
  readonly name: string
  /** First byte of the field, counted from the start of the buffer that was described. */
  readonly at: number
  /** Bytes that the field touches (a 4-bit field touches one). */
  readonly length: number
  /** The value as people write it: `10.244.1.2`, `0x08`, `64`. Empty when the bytes are missing. */
  readonly value: string
  readonly about: string
  /** Set when the bytes are not what they should be: truncated, a wrong checksum, a reserved bit. */
  readonly problem?: string
}

type NameOf<F extends readonly Field[]> = F[number]['name']

/** The field of that name. Throws at module load when the table has no such field: a programming error. */
export function fieldOf<const F extends readonly Field[]>(fields: F, name: NameOf<F>): Field {
  const field = fields.find((candidate) => candidate.name === name)
  if (field === undefined) throw new Error(`no field ${name}`)
  return field
}

/** Byte offset of a field that starts on a byte boundary. */
export function offsetOf<const F extends readonly Field[]>(fields: F, name: NameOf<F>): number {
  const field = fieldOf(fields, name)
  if (field.bit % 8 !== 0) throw new Error(`field ${name} does not start on a byte`)
  return field.bit / 8
}

/** Bytes that a table of fields covers. */
export function lengthOf(fields: readonly Field[]): number {
  return fields.reduce((bits, field) => bits + field.bits, 0) / 8
}
