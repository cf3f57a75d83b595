// `flannelette lab exec host1 -- …` from both ends: which program is run there, and whether this very process runs on a
// host of a lab. Commands that speak of "this node" then find its files without being told.
import { readdirSync, statSync } from 'node:fs'
import { mainProgram } from './daemon-process.ts'
import { hostFiles, labNames, readLabState } from './lab-state.ts'

export interface LabPlace {
  readonly lab: string
  readonly host: string
  readonly stateDirectory: string
  readonly subnetFile: string
  readonly log: string
  /** Public address of each host by its name. */
  readonly names: ReadonlyMap<string, string>
}

/** Named network namespaces, as `ip netns` keeps them. */
const NAMESPACES = '/run/netns'

/** The lab's host whose network this process has, `null` outside any. */
export function labAround(): LabPlace | null {
  const namespace = currentNamespace()
  if (namespace === null) return null
  for (const lab of labNames()) {
    const hosts = readLabState(lab)?.hosts ?? []
    const host = hosts.find((candidate) => candidate.namespace === namespace)
    if (host === undefined) continue
    const { stateDirectory, subnetFile, log } = hostFiles(lab, host.name)
    const names = new Map(hosts.map(({ name, underlayAddress }) => [name, underlayAddress]))
    return { lab, host: host.name, stateDirectory, subnetFile, log, names }
  }
  return null
}

/** A command line whose `flannelette` is this very build, which need not be installed. */
export function withOwnProgram(words: readonly string[]): string[] {
  const [program, ...rest] = words
  return program === 'flannelette' ? [process.execPath, mainProgram(), ...rest] : [...words]
}

/** Name of the network namespace that this process is in, `null` for one without a name. */
function currentNamespace(): string | null {
  try {
    const own = statSync('/proc/self/ns/net')
    const same = (name: string) => {
      const other = statSync(`${NAMESPACES}/${name}`)
      return other.ino === own.ino && other.dev === own.dev
    }
    return readdirSync(NAMESPACES).find(same) ?? null
  } catch {
    return null
  }
}
