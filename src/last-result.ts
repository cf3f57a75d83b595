// A result that is asked for more often than it changes: computed anew only when it is asked of other things.

/** `compute`, whose last result is kept for as long as its arguments are the very same. */
export function lastResult<Args extends readonly unknown[], Result>(
  compute: (...args: Args) => Result,
): (...args: Args) => Result {
  let last: { readonly args: Args; readonly result: Result } | null = null
  return (...args) => {
    if (last === null || args.some((arg, index) => arg !== last?.args[index])) last = { args, result: compute(...args) }
    return last.result
  }
}

/** `compute`, whose result (never `undefined`) is kept for each object, which never changes, for as long as that one lives. */
export function resultPer<Key extends object, Result>(compute: (key: Key) => Result): (key: Key) => Result {
  const known = new WeakMap<Key, Result>()
  return (key) => {
    const before = known.get(key)
    if (before !== undefined) return before
    const result = compute(key)
    known.set(key, result)
    return result
  }
}
