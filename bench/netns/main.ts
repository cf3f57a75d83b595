// `npm run bench`: two ways to forward in turns, kernel VXLAN and flannelette unless told otherwise, on each kind of
// underlay.
//
//   main [--underlay veth,uso,wire] [--load tcp,small-packets] [--match kernel,ours] [--rounds 5] [--seconds 4]
//        [-o json]
//
// Exit code 0 when every demanded ratio was reached, 1 when one was not or nothing could be measured, 2 for wrong
// usage.
import { Command, InvalidArgumentError, Option } from 'commander'
import { EXIT, FlanneletteError } from '../../src/errors.ts'
import { UNDERLAY_KINDS, type UnderlayKind } from '../../src/lab/plan.ts'
import { type Comparison, compare, removeLabs } from './compare.ts'
import { AGAINST_THE_KERNEL, CONTESTANTS, type Match } from './contestants.ts'
import { readEnvironment } from './environment.ts'
import type { Load } from './guards.ts'
import { type Report, table } from './report.ts'

interface Flags {
  readonly underlay: readonly UnderlayKind[]
  readonly load: readonly Load[]
  readonly match: Match
  readonly rounds: number
  readonly seconds: number
  readonly output: 'text' | 'json'
}

const LOADS: readonly Load[] = ['tcp', 'small-packets']

function flags(argv: readonly string[]): Flags {
  const command = new Command('bench')
    .description('measures two ways to forward in turns')
    .addOption(someOf('--underlay <kinds>', UNDERLAY_KINDS))
    .addOption(someOf('--load <loads>', LOADS))
    .addOption(
      new Option('--match <pair>', `baseline and challenger, two of ${CONTESTANTS.join(',')}`)
        .argParser(pair)
        .default(AGAINST_THE_KERNEL, Object.values(AGAINST_THE_KERNEL).join(',')),
    )
    .option('--rounds <count>', 'measurements of each', count, 5)
    .option('--seconds <seconds>', 'length of one', count, 4)
    .addOption(new Option('-o, --output <form>', 'form of the result').choices(['text', 'json']).default('text'))
    .exitOverride((error) => process.exit(error.exitCode === 0 ? EXIT.ok : EXIT.usage))
  return command.parse([...argv], { from: 'user' }).opts<Flags>()
}

function someOf<T extends string>(flag: string, known: readonly T[]): Option {
  const all = known.join(',')
  return new Option(flag, `some of ${all}`).argParser(listOf(known)).default(known, 'all')
}

function listOf<T extends string>(known: readonly T[]): (words: string) => T[] {
  return (words) =>
    words.split(',').map((word) => {
      const found = known.find((one) => one === word)
      if (found === undefined) throw new InvalidArgumentError(`choose from ${known.join(', ')}`)
      return found
    })
}

function pair(words: string): Match {
  const [baseline, challenger, more] = listOf(CONTESTANTS)(words)
  if (baseline === undefined || challenger === undefined || more !== undefined || baseline === challenger) {
    throw new InvalidArgumentError('two different ones, the baseline first')
  }
  return { baseline, challenger }
}

function count(word: string): number {
  if (!/^[1-9]\d{0,3}$/.test(word)) throw new InvalidArgumentError('a whole number from 1 to 9999')
  return Number(word)
}

async function main(argv: readonly string[]): Promise<number> {
  const { underlay: underlays, load: loads, match, rounds, seconds, output } = flags(argv)
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => void removeLabs(match).finally(() => process.exit(EXIT.interrupted)))
  }
  const environment = await readEnvironment()
  const comparisons: Comparison[] = []
  for (const underlay of underlays) {
    const progress = (line: string) => console.error(line)
    comparisons.push(...(await compare({ match, underlay, loads, rounds, seconds, progress })))
  }
  const report: Report = { version: 1, environment, seconds, comparisons }
  console.log(output === 'json' ? JSON.stringify(report, null, 2) : table(report))
  return comparisons.every(({ ratio, guard }) => guard === null || ratio >= guard) ? EXIT.ok : EXIT.failed
}

try {
  process.exitCode = await main(process.argv.slice(2))
} catch (error) {
  if (!(error instanceof FlanneletteError)) throw error
  console.error(error.oneLine)
  process.exitCode = error.exitCode
}
