// The `extension` backend's part of the network config: four commands of the operator's, and whether a shell reads them.
// flannel never starts a shell: it splits at white space and puts variables in. What would come out otherwise than it
// looks is said here.
import type { JsonFields } from './json-fields.ts'

/** flannel's names; `null` for one that was left out. */
export interface ExtensionCommands {
  /** Before the lease: what it says becomes the lease's backend data. */
  readonly preStartup: string | null
  /** Once the lease is there. */
  readonly postStartup: string | null
  /** For each peer, once it is there. */
  readonly subnetAdd: string | null
  readonly subnetRemove: string | null
  /** Our own key: `/bin/sh -c` runs the commands. */
  readonly shell: boolean
}

/** Keys of the config, in the order in which their commands run. */
export const COMMAND_KEYS = {
  preStartup: 'PreStartupCommand',
  postStartup: 'PostStartupCommand',
  subnetAdd: 'SubnetAddCommand',
  subnetRemove: 'SubnetRemoveCommand',
} as const

const SHELL_KEY = 'Shell'

/** What only a shell understands, by what a person would call it. A lone `&`, `*` or `~` is a plain word too often. */
const SHELL_WORDS: readonly (readonly [RegExp, string])[] = [
  [/["']/, 'quotes'],
  [/;/, '";"'],
  [/&&/, '"&&"'],
  [/\|/, '"|"'],
  [/[<>]/, '"<" or ">"'],
  [/`|\$\(/, 'a command inside the command'],
  [/\\/, 'a backslash'],
  [/^\s*(export|cd|if|for|while|set|source|eval|exec)\s/, 'a word of the shell'],
  [/^\s*\w+=/, 'an assignment'],
]

export interface ExtensionBackend {
  readonly commands: ExtensionCommands
  /** Sentences that begin with the key that they speak of. */
  readonly notices: readonly string[]
}

/** @throws JsonProblem for a value of another type */
export function extensionBackend(fields: JsonFields): ExtensionBackend {
  const read = (key: string) => {
    const text = fields.string(key, '').trim()
    return text === '' ? null : text
  }
  const commands: ExtensionCommands = {
    preStartup: read(COMMAND_KEYS.preStartup),
    postStartup: read(COMMAND_KEYS.postStartup),
    subnetAdd: read(COMMAND_KEYS.subnetAdd),
    subnetRemove: read(COMMAND_KEYS.subnetRemove),
    shell: fields.boolean(SHELL_KEY, false),
  }
  return { commands, notices: commands.shell ? [] : literalWords(commands) }
}

function literalWords(commands: ExtensionCommands): string[] {
  const notices: string[] = []
  for (const [name, key] of Object.entries(COMMAND_KEYS) as [keyof typeof COMMAND_KEYS, string][]) {
    const text = commands[name]
    const found = SHELL_WORDS.filter(([pattern]) => text !== null && pattern.test(text)).map(([, what]) => what)
    if (found.length === 0) continue
    notices.push(
      `Backend.${key} holds ${found.join(', ')}: without a shell these are plain characters, as with flannel; ` +
        `put the command into a script, or set Backend.${SHELL_KEY} to true`,
    )
  }
  return notices
}
