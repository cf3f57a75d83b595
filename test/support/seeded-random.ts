// Chance that repeats itself: the same seed gives the same numbers.

/** Numbers in [0, 1) from a 32-bit linear congruential generator (Numerical Recipes' constants). */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 32
  }
}
