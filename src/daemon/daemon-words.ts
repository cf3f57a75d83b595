// What the daemon was told at its start, read from its process.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { API_SOCKET } from './api-server.ts'

/** Words of its command line. @throws Error when there is no such process, or it may not be read */
export function wordsOf(pid: number): string[] {
  return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').filter(Boolean)
}

/** What a command line gives a flag: `--name value` or `--name=value`, also with one dash; `null` for nothing. */
export function optionOf(words: readonly string[], name: string): string | null {
  for (const [index, word] of words.entries()) {
    const [, found, value] = /^--?([\w-]+)(?:=(.*))?$/.exec(word) ?? []
    if (found === name) return value ?? words[index + 1] ?? null
  }
  return null
}

/** Its local socket: where it was told to make it, else in its state directory. `pid`: `null` when it is not known. */
export function apiSocketOf(pid: number | null, stateDirectory: string): string {
  const usual = join(stateDirectory, API_SOCKET)
  if (pid === null) return usual
  try {
    return optionOf(wordsOf(pid), 'api-socket') ?? inEnvironment(pid) ?? usual
  } catch {
    return usual
  }
}

function inEnvironment(pid: number): string | null {
  const variables = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0')
  return variables.map((one) => /^FLANNEL(?:LETTE|D)_API_SOCKET=(.+)$/.exec(one)?.[1]).find(Boolean) ?? null
}
