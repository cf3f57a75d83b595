// Runs a command that an operator wrote into the network config. Without a shell, as flannel does it: the text is split at
// white space, and `$NAME` and `${NAME}` in each word become the variable's value, which is never split again, so that no
// value can become a word, an option or a command. With a shell the text is the operator's alone, and values reach it by
// the environment.
import { type ChildProcess, spawn } from 'node:child_process'
import { constants } from 'node:os'

export interface ConfiguredCommand {
  readonly text: string
  /** `/bin/sh -c` reads it. */
  readonly shell: boolean
}

export interface CommandRun {
  /** What the command finds in its environment besides that of the process. */
  readonly variables: Readonly<Record<string, string>>
  /** Environment of the process, without what no command is to see. */
  readonly environment: Readonly<Record<string, string | undefined>>
  readonly input: string
  /** Milliseconds until it is killed, with all that it has started. */
  readonly limitMs: number
}

export interface CommandEnd {
  /** Standard output and error as they came, without white space around them; what is beyond 64 KiB is left out. */
  readonly output: string
  /** `null` when it ended with exit code 0, else why it is a failure, in one phrase. */
  readonly failure: string | null
  /** Some of the output was left out. */
  readonly isCut?: true
}

const LARGEST_OUTPUT = 65_536
/** Commands under way. */
const running = new Set<ChildProcess>()
/** How long output is waited for after the end: what a command leaves behind may hold its pipes for ever. */
const DRAIN_MS = 200

/** Words of a command, with variables put in. */
export function wordsOfCommand(text: string, variables: Readonly<Record<string, string | undefined>>): string[] {
  return text
    .split(/\s+/)
    .filter((word) => word !== '')
    .map((word) => expand(word, variables))
}

/** `$NAME` and `${NAME}`; a variable that is not there is empty, a `$` before anything else stays. */
function expand(word: string, variables: Readonly<Record<string, string | undefined>>): string {
  return word.replace(/\$(?:\{(\w+)\}|(\w+))/g, (_, braced?: string, bare?: string) => {
    return variables[braced ?? bare ?? ''] ?? ''
  })
}

/** No command outlives the process that would have seen to its end: nobody would be left to kill it. */
export function killRunningCommands(): void {
  for (const child of running) killGroup(child)
}

/** Runs it to its end; never fails by itself. */
export function runConfigured({ text, shell }: ConfiguredCommand, run: CommandRun): Promise<CommandEnd> {
  const environment = { ...run.environment, ...run.variables }
  const [program = '', ...words] = shell ? ['/bin/sh', '-c', text] : wordsOfCommand(text, environment)
  return new Promise((resolve) => {
    let child: ChildProcess
    try {
      // A process group of its own, so that the deadline reaches what it has started as well.
      // Without files left to open there is a child without streams, which fails a moment later.
      child = spawn(program, words, { env: environment, detached: true, stdio: ['pipe', 'pipe', 'pipe'] })
    } catch (error) {
      // A zero among its characters, or more of them than the kernel takes.
      return resolve({ output: '', failure: startFailure(program, error as Error) })
    }
    watchOver(child, program, run, resolve)
  })
}

function watchOver(child: ChildProcess, program: string, run: CommandRun, resolve: (end: CommandEnd) => void): void {
  if (!process.listeners('exit').includes(killRunningCommands)) process.once('exit', killRunningCommands)
  running.add(child)
  const output = collect(child)
  let isLate = false
  const deadline = setTimeout(() => {
    isLate = true
    killGroup(child)
  }, run.limitMs)
  const finish = (failure: string | null) => {
    clearTimeout(deadline)
    running.delete(child)
    child.stdout?.destroy()
    child.stderr?.destroy()
    resolve({ ...output(), failure })
  }
  child.on('error', (error) => finish(startFailure(program, error)))
  child.stdin?.on('error', () => {}) // a command that reads nothing is no failure
  child.stdin?.end(run.input)
  child.on('exit', (code, signal) => {
    const failure = isLate ? `no end within ${run.limitMs / 1000} s, killed` : endFailure(code, signal)
    const drained = setTimeout(() => finish(failure), DRAIN_MS)
    child.on('close', () => {
      clearTimeout(drained)
      finish(failure)
    })
  })
}

function collect(child: ChildProcess): () => Omit<CommandEnd, 'failure'> {
  let text = ''
  let isCut = false
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8').on('data', (more: string) => {
      isCut ||= text.length + more.length > LARGEST_OUTPUT
      if (text.length < LARGEST_OUTPUT) text = (text + more).slice(0, LARGEST_OUTPUT)
    })
  }
  return () => ({ output: text.trim(), ...(isCut ? { isCut } : {}) })
}

function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // it has just ended by itself
  }
}

function startFailure(program: string, error: Error): string {
  const { code } = error as NodeJS.ErrnoException
  if (code === 'ENOENT') return `the program ${program} is missing`
  if (code === 'EACCES') return `${program} may not be run`
  return `${program.slice(0, 200)} could not be started: ${error.message.slice(0, 200)}`
}

function endFailure(code: number | null, signal: NodeJS.Signals | null): string | null {
  if (code === 0) return null
  return signal === null ? `exit code ${code}` : `ended by ${signal} (${constants.signals[signal]})`
}
