// The largest packet that passes whole: asked for at once, else narrowed down, several sizes at a time so that sizes
// that vanish cost one wait for all of them.

/** What became of one size. `limitBytes` is what a kernel or router named as its limit, `null` for silence. */
export interface SizeAnswer {
  readonly passes: boolean
  readonly limitBytes: number | null
}

export interface RulerResult {
  /** Largest size that passed, in bytes; `null` when not even the smallest did. */
  readonly largestBytes: number | null
  /** A limit that somebody named on the way, `null` when packets just vanish. */
  readonly namedBytes: number | null
}

/** Sizes asked for at the same time. */
const WIDTH = 8

/** Every IPv4 host takes packets of this size (RFC 791): below it nothing is looked for. */
export const SMALLEST_BYTES = 576

/** Finds the largest size from {@link SMALLEST_BYTES} to `most` that passes. */
export async function measure(
  most: number,
  ask: (bytes: number) => Promise<SizeAnswer>,
  signal?: AbortSignal,
): Promise<RulerResult> {
  let whole = await ask(most)
  // Silence may be bad luck; a limit that was named is not.
  if (!whole.passes && whole.limitBytes === null) whole = await ask(most)
  if (whole.passes) return { largestBytes: most, namedBytes: null }
  let namedBytes = whole.limitBytes
  let largest = SMALLEST_BYTES - 1
  /** Sizes that did not pass, and whether that is sure: somebody refused them, or they vanished twice. */
  const failed = new Map([[most, true]])
  const askAll = async (sizes: readonly number[]) => {
    const answers = await Promise.all(sizes.map((bytes) => ask(bytes)))
    for (const [index, { passes, limitBytes }] of answers.entries()) {
      const bytes = sizes[index]!
      if (passes) largest = Math.max(largest, bytes)
      else failed.set(bytes, limitBytes !== null || failed.has(bytes))
      namedBytes ??= limitBytes
    }
  }
  // Most often the limit is the truth, and only the size above it is left to be refused.
  if (namedBytes !== null && namedBytes > largest && namedBytes < most) await askAll([namedBytes, namedBytes + 1])
  // A path may change meanwhile, and pass what it has just refused.
  while (largest < most && signal?.aborted !== true) {
    // Where a small size was lost although a larger one passed, the larger one is believed.
    const fails = Math.min(...[...failed.keys()].filter((bytes) => bytes > largest))
    if (fails - largest > 1) await askAll(between(largest, fails))
    else if (failed.get(fails) === true) break
    else await askAll([fails])
  }
  return { largestBytes: largest < SMALLEST_BYTES ? null : largest, namedBytes }
}

/** Up to {@link WIDTH} sizes spread over the open interval. */
function between(low: number, high: number): number[] {
  const room = high - low - 1
  const count = Math.min(WIDTH, room)
  return Array.from({ length: count }, (_, index) => low + Math.ceil(((index + 1) * room) / count))
}
