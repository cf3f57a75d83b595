#!/usr/bin/env node
// What `flannelette` starts: refuses what cannot run it, by name and in one line, before anything modern is parsed.
// CommonJS, and in words that the Nodes of ten years ago understand.
const OLDEST_NODE = [20, 19] as const

/** Why this Node on this platform cannot run the program, empty when it can. */
function refusal(version: string, platform: string): string {
  if (platform !== 'linux') return `this is ${platform}, and flannelette runs on Linux only; use a Linux machine`
  const [major = 0, minor = 0] = version.split('.').map(Number)
  if (major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1])) return ''
  return `Node ${version} is too old for flannelette; use Node ${OLDEST_NODE.join('.')} or newer`
}

function fail(why: string, exitCode: number): void {
  process.stderr.write(`flannelette: ${why}\n`)
  process.exitCode = exitCode
}

const refused = refusal(process.versions.node, process.platform)
if (refused !== '') fail(refused, 2)
else {
  import('./main.ts')
    .then((program) => program.start())
    .catch((error: Error) => fail(`${error.message.split('\n')[0]}; install the package again`, 1))
}
