// The part of the WebAssembly JavaScript interface that the packet memory uses: neither Node's types nor the plain
// language library declare it, and the browser's library would bring all of the DOM along.
declare namespace WebAssembly {
  class Memory {
    constructor(limits: { initial: number; maximum: number; shared: boolean })
    readonly buffer: SharedArrayBuffer
  }
  class Module {
    constructor(bytes: Uint8Array)
  }
  class Instance {
    constructor(module: Module, imports: Record<string, Record<string, unknown>>)
    readonly exports: Record<string, unknown>
  }
}
