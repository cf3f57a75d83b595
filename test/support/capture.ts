// What a device carries, as Ethernet frames: tcpdump in a network namespace, its file read back. For wire-like links,
// whose frames are whole, cut and summed when they pass.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect } from 'vitest'
import { inNamespace } from '../../src/host/command.ts'
import { temporaryDirectory } from './temporary-directory.ts'

/** pcap file and record headers, bytes; the captured length stands at 8 in a record (pcap-savefile(5)). */
const FILE_HEADER = 24
const RECORD_HEADER = 16
const CAPTURED_LENGTH = 8
/** KiB of the kernel's capture buffer. */
const BUFFER_KIB = 64 << 10

export interface CaptureOptions {
  readonly namespace: string
  readonly device: string
  /** Frames that leave the device, those that enter it, or both. */
  readonly direction: 'in' | 'out' | 'inout'
  /** Filter of pcap-filter(7). */
  readonly filter: string
  /** Ends the capture by itself. */
  readonly count?: number
}

export class Capture {
  readonly #tcpdump: ChildProcess
  readonly #ended: Promise<unknown>
  readonly #file: string

  private constructor(tcpdump: ChildProcess, file: string) {
    this.#tcpdump = tcpdump
    this.#ended = once(tcpdump, 'exit')
    this.#file = file
  }

  /** Captures from now on. Call inside a test. */
  static async start({ namespace, device, direction, filter, count }: CaptureOptions): Promise<Capture> {
    const file = join(temporaryDirectory(), 'capture.pcap')
    const limit = count === undefined ? [] : ['-c', String(count)]
    const options = ['-n', '-U', '-s', '0', '--immediate-mode', '-B', String(BUFFER_KIB), ...limit]
    const argv = inNamespace(namespace, ['tcpdump', '-i', device, '-Q', direction, ...options, '-w', file, filter])
    const tcpdump = spawn(argv[0]!, argv.slice(1), { stdio: ['ignore', 'ignore', 'pipe'] })
    const capture = new Capture(tcpdump, file)
    let said = ''
    for await (const text of tcpdump.stderr!.iterator({ destroyOnReturn: false })) {
      said += text
      if (said.includes('listening on')) break
    }
    tcpdump.stderr!.resume()
    if (!said.includes('listening on')) throw new Error(`tcpdump: ${said}`)
    return capture
  }

  /** Whether it still listens. */
  get isRunning(): boolean {
    return this.#tcpdump.exitCode === null && this.#tcpdump.signalCode === null
  }

  /** Frames seen so far, in order. */
  frames(): Uint8Array[] {
    const bytes = readFileSync(this.#file)
    // Plain arrays: slice() of a Buffer would not copy.
    const plain = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length)
    const frames: Uint8Array[] = []
    for (let at = FILE_HEADER; at + RECORD_HEADER <= bytes.length; ) {
      const end = at + RECORD_HEADER + bytes.readUInt32LE(at + CAPTURED_LENGTH)
      if (end > bytes.length) break
      frames.push(plain.subarray(at + RECORD_HEADER, end))
      at = end
    }
    return frames
  }

  /** Ends the capture, once so many frames are there: tcpdump may have no time for what has passed long ago. */
  async stop(atLeast = 0): Promise<Uint8Array[]> {
    if (atLeast > 0) await expect.poll(() => this.frames().length).toBeGreaterThanOrEqual(atLeast)
    this.#tcpdump.kill('SIGTERM')
    await this.#ended
    return this.frames()
  }
}
