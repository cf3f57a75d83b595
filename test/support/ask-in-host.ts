// Commands of ours inside a host of a lab, as an operator runs them, and what their JSON says.
import { mainProgram } from '../../src/lab/daemon-process.ts'
import type { Lab } from '../../src/lab/lab.ts'

/** Runs `flannelette WORDS -o json` in a host; `json` is its standard output, read. */
export async function askInHost(lab: Lab, host: string, ...words: string[]) {
  const argv = [process.execPath, mainProgram(), ...words, '-o', 'json']
  const result = await lab.exec(host, argv, { timeoutMs: 60_000 })
  return { ...result, json: JSON.parse(result.stdout) }
}

/** Verdicts of the rungs of `ping NODE`, in order. */
export function verdictsOf(rungs: readonly { readonly verdict: string }[]): string {
  return rungs.map(({ verdict }) => verdict).join(' ')
}
