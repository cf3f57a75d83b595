// One row of the table of injected errors: a call of libc.ts, what it gives in place of success, and what comes of it.
// The rows stand in error-rows-*.ts, the table is test/dataplane/io/linux/injected-errors.test.ts.

export interface ErrorRow {
  /** Name of the wrapper in libc.ts. */
  readonly call: string
  /** Name of the errno, or what else went wrong, and on what. */
  readonly error: string
  readonly reaction: string
  /** Lets it happen and looks at the reaction; every call is scripted, see scripted-libc.ts. */
  check(): void | Promise<void>
}

/** Rows of one call that differ in the error alone. */
export function rowsOf(
  call: string,
  what: string,
  errors: Readonly<Record<string, number>>,
  reaction: string,
  check: (errno: number) => void | Promise<void>,
): ErrorRow[] {
  return Object.entries(errors).map(([name, errno]) => ({
    call,
    error: what === '' ? name : `${name} for ${what}`,
    reaction,
    check: () => check(errno),
  }))
}
