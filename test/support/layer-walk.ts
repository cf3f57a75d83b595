// The walk through the layers of a packet as tests look at it: which layers, which values, which problems.
import type { FieldNote } from '../../dataplane/wire/field.ts'
import { describeLayers, type Layer } from '../../dataplane/wire/layers.ts'

/** Where the inner IP header lies in a golden frame. */
export const INNER_AT = 64

/** Names of the layers in the order of the walk, each once per stretch. */
export function route(notes: readonly FieldNote[]): string {
  const layers = notes.map((note) => note.layer)
  return layers.filter((layer, index) => layer !== layers[index - 1]).join(' ')
}

export const walk = (buf: Uint8Array, first: Layer = 'ethernet') => describeLayers(buf, 0, buf.length, first)
export const value = (notes: readonly FieldNote[], layer: string, name: string) =>
  notes.filter((note) => note.layer === layer && note.name === name).map((note) => note.value)
export const problems = (notes: readonly FieldNote[]) =>
  notes.filter((note) => note.problem !== undefined).map((note) => `${note.layer} ${note.name}: ${note.problem}`)
