// System calls whose results are scripted, in place of libc.ts: for the errors that a kernel gives only when it is in
// trouble. Put in place with `vi.mock`; a call beyond the script throws.

/** Results that the next calls of each name give, and the names of the calls made. */
export class ScriptedLibc {
  readonly made: string[] = []
  readonly #script = new Map<string, number[]>()
  #answer: ((name: string, args: readonly unknown[]) => number) | null = null
  #watcher: ((name: string, args: readonly number[], result: number) => void) | null = null

  /** The next calls of that name give these results, in order. */
  give(name: string, ...results: number[]): void {
    this.#script.set(name, [...(this.#script.get(name) ?? []), ...results])
  }

  /** Lets somebody look at each call while it is made. */
  watch(watcher: (name: string, args: readonly number[], result: number) => void): void {
    this.#watcher = watcher
  }

  /** What calls give for which the script has nothing (more), instead of throwing. */
  otherwise(answer: (name: string, args: readonly unknown[]) => number): void {
    this.#answer = answer
  }

  reset(): void {
    this.#answer = null
    this.made.length = 0
    this.#script.clear()
    this.#watcher = null
  }

  call(name: string, args: readonly number[] = []): number {
    this.made.push(name)
    const result = this.#script.get(name)?.shift() ?? this.#answer?.(name, args)
    if (result === undefined) throw new Error(`no result left for ${name}`)
    this.#watcher?.(name, args, result)
    return result
  }
}

export const scripted = new ScriptedLibc()

const given =
  (name: string): ((...args: number[]) => number) =>
  (...args) =>
    scripted.call(name, args)

/** What `vi.mock` puts in the place of the module. */
export const libcModule = {
  open: given('open'),
  close: given('close'),
  ioctlPointer: given('ioctlPointer'),
  ioctlValue: given('ioctlValue'),
  socket: given('socket'),
  bind: given('bind'),
  setsockopt: given('setsockopt'),
  getsockopt: given('getsockopt'),
  getsockname: given('getsockname'),
  addressOf: () => 0,
  read: given('read'),
  writev: given('writev'),
  poll: given('poll'),
  sendmmsg: given('sendmmsg'),
  recvmmsg: given('recvmmsg'),
}
