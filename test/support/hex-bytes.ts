// Bytes as tests write them down: hex digits, spaces where they help the eye.

/** `'08 00 00 00'` or `'08000000'` to bytes. Throws on anything that is no whole number of bytes. */
export function bytesFrom(hex: string): Uint8Array {
  const digits = hex.replace(/\s/g, '')
  if (!/^([0-9a-f]{2})*$/i.test(digits)) throw new Error(`not hex: ${hex}`)
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16))
}
