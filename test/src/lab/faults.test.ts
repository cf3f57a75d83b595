// Faults as data: what is in force after each command, and the rules that come of it.
import { describe, expect, test } from 'vitest'
import {
  addFault,
  checkFault,
  checkHealing,
  describeFault,
  type Fault,
  faultRulesets,
  healsDaemonOf,
  parsePercent,
  withoutFaults,
} from '../../../src/lab/faults.ts'

const HOSTS = [1, 2].map((n) => ({
  name: `host${n}`,
  namespace: `flannelette-lab-host${n}`,
  underlayAddress: `192.168.56.1${n}`,
  underlayIpv6: null,
}))
const SWITCHED = { switchNamespace: 'flannelette-lab-switch', hosts: HOSTS }
const DIRECT = { switchNamespace: null, hosts: HOSTS }
const LOSS: Fault = { kind: 'loss', percent: 1 }
const DUPLICATE: Fault = { kind: 'duplicate', percent: 0.5 }
const CUT: Fault = { kind: 'cut', hosts: ['host1'] }
const CUT_PATH: Fault = { kind: 'cut', hosts: ['host1', 'host2'] }
const CRASH: Fault = { kind: 'crash', host: 'host2' }

const ruleset = (...faults: Fault[]) => faultRulesets(SWITCHED, faults).get('flannelette-lab-switch') ?? ''

describe('the switch’s rules', () => {
  test('are all taken away when there is no fault', () => {
    expect(ruleset()).toBe(
      'table bridge faults {}\ndelete table bridge faults\ntable netdev faults {}\ndelete table netdev faults\n',
    )
  })

  test('lose and duplicate shares of a percent', () => {
    const rules = ruleset(LOSS, DUPLICATE)
    expect(rules).toContain('meta protocol ip numgen random mod 100000 <= 999 counter drop')
    expect(rules).toContain('ip daddr 192.168.56.12 numgen random mod 100000 <= 499 counter dup to "host2"')
  })

  test('lose and duplicate IPv6 as well where hosts have it', () => {
    const hosts = HOSTS.map((host, index) => ({ ...host, underlayIpv6: `fd00::${index + 1}` }))
    const rules = faultRulesets({ ...SWITCHED, hosts }, [LOSS, DUPLICATE]).get('flannelette-lab-switch')
    for (const match of ['meta protocol ip ', 'meta protocol ip6 ', 'ip daddr 192.168.56.12 ', 'ip6 daddr fd00::2 ']) {
      expect(rules).toContain(match)
    }
    const alone = hosts.map((host) => ({ ...host, underlayAddress: host.underlayIpv6 }))
    expect(faultRulesets({ ...SWITCHED, hosts: alone }, [DUPLICATE]).get('flannelette-lab-switch')).not.toContain(
      'ip daddr',
    )
  })

  test('can do everything and nearly nothing', () => {
    expect(ruleset({ kind: 'loss', percent: 100 })).toContain('<= 99999')
    expect(ruleset({ kind: 'loss', percent: 0.0001 })).toContain('<= 0 ')
  })

  test('cut a host off both ways, or one path', () => {
    expect(ruleset(CUT)).toMatch(/iifname "host1" drop\n.*oifname "host1" drop/)
    expect(ruleset(CUT_PATH)).toContain('iifname "host2" oifname "host1" drop')
    expect(ruleset(CUT_PATH)).not.toMatch(/iifname "host1" drop/)
  })

  test('do not know of killed daemons', () => {
    expect(ruleset(CRASH)).toBe(ruleset())
  })
})

describe('a direct link', () => {
  test('loses and cuts where the hosts receive', () => {
    const rules = faultRulesets(DIRECT, [LOSS, CUT])
    expect([...rules.keys()]).toEqual(['flannelette-lab-host1', 'flannelette-lab-host2'])
    expect(rules.get('flannelette-lab-host2')).toMatch(/ingress device "eth0".*\n.*counter drop\n {2}drop/)
  })

  test('cannot duplicate, and says so', () => {
    expect(() => faultRulesets(DIRECT, [DUPLICATE])).toThrow(/cannot duplicate/)
  })
})

describe('faults in force', () => {
  test('hold one loss and one duplication, and each cut once', () => {
    const faults = [LOSS, DUPLICATE, CUT, CUT_PATH, CUT, { kind: 'loss', percent: 7 } as const].reduce(addFault, [])
    expect(faults).toEqual([DUPLICATE, CUT_PATH, CUT, { kind: 'loss', percent: 7 }])
  })

  test('are healed by kind, by host, or all', () => {
    const all = [LOSS, CUT, CUT_PATH, CRASH]
    expect(withoutFaults(all, 'loss')).toEqual([CUT, CUT_PATH, CRASH])
    expect(withoutFaults(all, 'host1')).toEqual([LOSS, CRASH])
    expect(withoutFaults(all, 'host2')).toEqual([LOSS, CUT])
    expect(withoutFaults(all)).toEqual([])
  })

  test('read as sentences', () => {
    expect([LOSS, DUPLICATE, CUT, CUT_PATH, CRASH].map(describeFault)).toEqual([
      '1 % loss',
      '0.5 % duplication',
      'host1 cut off',
      'no path between host1 and host2',
      'host2: daemon killed',
    ])
  })
})

test('a path is cut between two different hosts', () => {
  checkFault(CUT)
  checkFault(CUT_PATH)
  expect(() => checkFault({ kind: 'cut', hosts: ['host1', 'host1'] })).toThrow(
    expect.objectContaining({ code: 'usage', remedy: expect.stringContaining('two different hosts') }),
  )
})

test('only kinds of faults and hosts of the lab can be healed', () => {
  for (const what of ['loss', 'duplicate', 'cut', 'crash', 'host2']) checkHealing(what, HOSTS)
  for (const what of ['nonsense', 'host3', '']) {
    expect(() => checkHealing(what, HOSTS)).toThrow(
      expect.objectContaining({ code: 'usage', remedy: expect.stringContaining('crash, host1, host2') }),
    )
  }
})

test.each([
  ['0.001', 0.001],
  ['1', 1],
  ['0.5', 0.5],
  ['12.25%', 12.25],
  ['100', 100],
])('%s is a share', (text, percent) => {
  expect(parsePercent(text)).toBe(percent)
})

test.each(['', '0', '101', '-1', 'many', '1e1', '5 %%'])('"%s" is no share', (text) => {
  expect(() => parsePercent(text)).toThrow(/no share of packets/)
})

test('healing everything, crashes or a host starts daemons that do not run; healing the wires does not', () => {
  expect([undefined, 'crash', 'host2'].map((what) => healsDaemonOf('host2', what))).toEqual([true, true, true])
  expect(['loss', 'cut', 'host1'].map((what) => healsDaemonOf('host2', what))).toEqual([false, false, false])
})
