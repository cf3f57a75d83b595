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
