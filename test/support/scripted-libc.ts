// System calls whose results are scripted, in place of libc.ts: for the errors that a kernel gives only when it is in
// trouble. Put in place with `vi.mock`; a call beyond the script throws.

/** Results that the next calls of each name give, and the names of the calls made. */
export class ScriptedLibc {
  readonly made: string[] = []
  /** The packet memory made last: what is at the addresses that calls are given. */
  bytes: Uint8Array = new Uint8Array()
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

/** The descriptor that {@link grantAllBut} gives for every open. */
export const GRANTED_FD = 9
const SOL_UDP = 17
const UDP_GRO = 104

/** A kernel that grants everything but what `refuse` has an errno for. */
export function grantAllBut(refuse: (name: string, args: readonly unknown[]) => number | undefined): void {
  scripted.otherwise((name, args) => {
    const errno = refuse(name, args)
    if (errno !== undefined) return -errno
    if (name === 'open' || name === 'socket' || name === 'eventfd') return GRANTED_FD
    return name === 'getsockopt' && args[1] === SOL_UDP && args[2] === UDP_GRO ? 1 : 0
  })
}

/** How many descriptors were closed. */
export function closes(): number {
  return scripted.made.filter((name) => name === 'close').length
}

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
  connect: given('connect'),
  setsockopt: given('setsockopt'),
  getsockopt: given('getsockopt'),
  getsockname: given('getsockname'),
  addressOf: (bytes: Uint8Array) => {
    scripted.bytes = bytes
    return 0
  },
  eventfd: given('eventfd'),
  eventfdWrite: given('eventfdWrite'),
  read: given('read'),
  writev: given('writev'),
  poll: given('poll'),
  pollAside: (fds: number, count: number, timeoutMs: number, done: (ready: number) => void) => {
    const ready = scripted.call('pollAside', [fds, count, timeoutMs])
    setImmediate(() => done(ready))
  },
  duplicate: given('duplicate'),
  socketDrops: given('socketDrops'),
  sendto: (fd: number, bytes: Uint8Array, flags: number) => scripted.call('sendto', [fd, bytes.length, flags]),
  sendmmsg: given('sendmmsg'),
  recvmmsg: given('recvmmsg'),
}
