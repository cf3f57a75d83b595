// A TCP transfer from one namespace to another, and the digests of what went and what came.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { inNamespace } from '../../src/host/command.ts'
import type { Endpoint } from '../../src/lab/ping.ts'
import { ROOT } from './source-tree.ts'

const PROGRAM = join(ROOT, 'test/support/tcp-transfer.mjs')
const PORT = 7000

export interface TransferSize {
  readonly mebibytes: number
  readonly seconds?: number
  readonly held?: boolean
}

export interface Transfer {
  /** `BYTES SHA256` of both ends, and for how long nothing came at most, once the transfer is over. */
  readonly done: Promise<{ readonly sent: string; readonly received: string; readonly longestGapMs: number }>
  /** Resolves when there is a connection. */
  readonly connected: Promise<unknown>
  /** Resolves when the first MiB has come. */
  readonly begun: Promise<void>
  /** Whether it still runs. */
  isRunning(): boolean
  /** Lets a held transfer end. */
  release(): void
}

/**
 * Starts sending so many MiB, for `seconds` or longer, and comes back when the first bytes may go. `held`: the last MiB
 * waits until it is released, so that the connection outlives whatever is done to it. Call inside a test.
 */
export async function startTransfer(
  from: Pick<Endpoint, 'namespace'>,
  to: Pick<Endpoint, 'namespace' | 'address'>,
  { mebibytes, seconds = 0, held = false }: TransferSize,
): Promise<Transfer> {
  const receiver = program(to.namespace, ['receive', PORT])
  const received = linesOf(receiver)
  await once(receiver.stdout!, 'data') // it says when it listens
  const begun = comes(receiver)
  const sender = program(from.namespace, ['send', to.address, PORT, mebibytes, seconds])
  const connected = once(sender.stdout!, 'data')
  if (!held) sender.stdin!.end()
  let running = true
  const done = Promise.all([linesOf(sender), received]).then(([sent, arrived]) => {
    running = false
    const last = (lines: readonly string[]) => lines.at(-1) ?? ''
    return { sent: last(sent), received: last(arrived), longestGapMs: Number(arrived.at(-2)) }
  })
  return { done, connected, begun, isRunning: () => running, release: () => void sender.stdin!.end() }
}

function comes(receiver: ChildProcess): Promise<void> {
  return new Promise((resolve) => receiver.stdout!.on('data', (text) => /comes/.test(text) && resolve()))
}

function program(namespace: string, words: readonly (string | number)[]): ChildProcess {
  const argv = inNamespace(namespace, [process.execPath, PROGRAM, ...words.map(String)])
  const child = spawn(argv[0]!, argv.slice(1), { stdio: ['pipe', 'pipe', 'inherit'] })
  child.stdin!.on('error', () => {}) // it has ended before it was told
  onTestFinished(() => void child.kill('SIGKILL'))
  return child
}

async function linesOf(child: ChildProcess): Promise<string[]> {
  let text = ''
  child.stdout!.on('data', (chunk) => {
    text += chunk
  })
  await once(child, 'close')
  return text.trimEnd().split('\n')
}
