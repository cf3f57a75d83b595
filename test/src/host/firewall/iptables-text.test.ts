// From any listing to the right one in one step, with nothing of others touched.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parsePrefix } from '../../../../dataplane/wire/prefix.ts'
import {
  CHAINS,
  type ChainListing,
  chainsOf,
  chainText,
  planRepair,
  printedForm,
  seatsInListing,
} from '../../../../src/host/firewall/iptables-text.ts'
import { masqueradeRules } from '../../../../src/host/firewall/rules.ts'

const PLACE = CHAINS.masquerade
const networks = (network: string, subnet: string) => ({
  family: 'ip' as const,
  network: parsePrefix(network)!,
  subnet: parsePrefix(subnet)!,
})
const WANTED = chainText(masqueradeRules(networks('10.244.0.0/16', '10.244.1.0/24')), true)
const FORMER = chainText(masqueradeRules(networks('10.1.0.0/16', '10.1.7.0/24')), false)
const FOREIGN = [
  '-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE',
  '-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING',
  '-A POSTROUTING -j FLANNEL-POSTRTG-MINE',
]
/** What the first versions of flannel wrote, into the hook and without a comment. */
const OLDEST = [
  '-A POSTROUTING -s 10.244.0.0/16 -d 10.244.1.0/24 -j RETURN',
  '-A POSTROUTING -s 10.244.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE',
]
const inHook = (line: string) => line.replace(PLACE.chain, PLACE.hook)

/** What iptables-restore --noflush makes of the lines. Throws where it would refuse. */
function restored({ hook, chain }: ChainListing, lines: readonly string[]): ChainListing {
  const after = { hook: [...hook], chain: chain === null ? null : [...chain] }
  for (const line of lines) {
    if (line === `:${PLACE.chain} - [0:0]`) after.chain = []
    else if (line === `-X ${PLACE.chain}`) {
      if (after.hook.some((rule) => rule.endsWith(` -j ${PLACE.chain}`))) throw new Error('chain in use')
      after.chain = null
    } else if (line.startsWith(`-A ${PLACE.chain} `)) after.chain!.push(line)
    else if (line.startsWith('-A ')) after.hook.push(line)
    else {
      const at = after.hook.indexOf(line.replace(/^-D/, '-A'))
      if (at < 0) throw new Error(`no such rule: ${line}`)
      after.hook.splice(at, 1)
    }
  }
  return after
}

const anyListing = fc.record<ChainListing>({
  hook: fc.array(
    fc.constantFrom(WANTED.jump, ...FOREIGN, ...OLDEST, ...FORMER.rules.map(inHook), ...WANTED.rules.map(inHook)),
    { maxLength: 8 },
  ),
  chain: fc.option(
    fc.oneof(
      fc.constant([...WANTED.rules]),
      fc.shuffledSubarray([...WANTED.rules, ...FORMER.rules, `-A ${PLACE.chain} -j ACCEPT`]),
    ),
  ),
})
const foreignOf = ({ hook }: ChainListing) => hook.filter((line) => FOREIGN.includes(line))

test('whatever was there, one step makes it right, a second finds nothing, and foreign rules stay in their order', () => {
  fc.assert(
    fc.property(anyListing, (present) => {
      const after = restored(present, planRepair(PLACE, WANTED, present).lines)
      expect(after.chain).toEqual(WANTED.rules)
      expect(after.hook.filter((line) => !FOREIGN.includes(line))).toEqual([WANTED.jump])
      expect(foreignOf(after)).toEqual(foreignOf(present))
      expect(planRepair(PLACE, WANTED, after)).toEqual({ faults: [], lines: [] })
    }),
  )
})

test('removal takes what carries our name, and a second one finds nothing', () => {
  fc.assert(
    fc.property(anyListing, (present) => {
      // Without a wish for rules, those without a comment cannot be told from anybody's.
      const named = { ...present, hook: present.hook.filter((line) => !OLDEST.includes(line)) }
      const after = restored(named, planRepair(PLACE, null, named).lines)
      expect(after).toEqual({ hook: foreignOf(named), chain: null })
      expect(planRepair(PLACE, null, after)).toEqual({ faults: [], lines: [] })
    }),
  )
})

test('what a program prints in words of its own is right once it was seen, and wrong again when it changes', () => {
  const other = (line: string) => line.replace('0x4000/0x4000', '0x4000/0x00004000')
  const written = restored(
    { hook: [...FOREIGN], chain: null },
    planRepair(PLACE, WANTED, { hook: FOREIGN, chain: null }).lines,
  )
  const present = { hook: written.hook, chain: written.chain!.map(other) }
  expect(planRepair(PLACE, WANTED, present).faults).toHaveLength(1)
  const printed = printedForm(PLACE, WANTED, present)
  expect(planRepair(PLACE, WANTED, present, printed)).toEqual({ faults: [], lines: [] })
  const changed = { ...present, chain: present.chain.toReversed() }
  expect(planRepair(PLACE, WANTED, changed, printed).faults).toHaveLength(1)
  expect(printedForm(PLACE, WANTED, { ...present, chain: present.chain.slice(1) })).toBeNull()
})

describe('a fault is told', () => {
  const right: ChainListing = { hook: [...FOREIGN, WANTED.jump], chain: WANTED.rules }
  test.each<[string, ChainListing, string]>([
    ['no chain', { hook: [], chain: null }, 'chain FLANNEL-POSTRTG is missing'],
    [
      'a rule too few',
      { ...right, chain: WANTED.rules.slice(1) },
      'rules of FLANNEL-POSTRTG are missing, changed or out of order',
    ],
    [
      'two rules swapped',
      { ...right, chain: WANTED.rules.toReversed() },
      'rules of FLANNEL-POSTRTG are missing, changed or out of order',
    ],
    ['no jump', { ...right, hook: FOREIGN }, 'POSTROUTING does not lead to FLANNEL-POSTRTG'],
    ['two jumps', { ...right, hook: [WANTED.jump, ...right.hook] }, 'POSTROUTING has 1 left-over rules of ours'],
  ])('%s', (_, present, fault) => {
    expect(planRepair(PLACE, WANTED, present).faults).toContain(fault)
  })

  test('none where all is right', () => {
    expect(planRepair(PLACE, WANTED, right)).toEqual({ faults: [], lines: [] })
  })
})

describe('several daemons on one host', () => {
  const SECOND = chainsOf(2)
  const OTHERS = chainText(masqueradeRules(networks('10.77.0.0/16', '10.77.1.0/24')), true, SECOND)
  const hook = [WANTED.jump, OTHERS.jump]

  test.each([
    ['first', PLACE, WANTED],
    ['second', SECOND.masquerade, OTHERS],
  ] as const)('the %s one finds its rules right beside those of the other', (_, place, text) => {
    expect(planRepair(place, text, { hook, chain: text.rules })).toEqual({ faults: [], lines: [] })
  })

  test.each([
    ['first', PLACE, WANTED],
    ['second', SECOND.masquerade, OTHERS],
  ] as const)('the %s one takes away its own jump and chain alone', (_, place, text) => {
    const { lines } = planRepair(place, null, { hook, chain: text.rules })
    expect(lines).toEqual([`:${place.chain} - [0:0]`, text.jump.replace('-A', '-D'), `-X ${place.chain}`])
  })

  test('are told by the names of their chains; the first one has flannel’s', () => {
    const listing = [
      '-P FORWARD ACCEPT',
      ...[PLACE, SECOND.forward, chainsOf(12).masquerade].map(({ chain }) => `-N ${chain}`),
    ]
    expect(seatsInListing([...listing, '-N FLANNEL-FWD-MINE', '-A FORWARD -j FLANNEL-FWD-7'].join('\n'))).toEqual([
      1, 2, 12,
    ])
  })
})
