// What docs/deploy/ gives to operators: it can be parsed, says nothing that we do not have, and systemd takes it.
import { execFileSync, spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { runCommand } from '../src/cli/run.ts'
import { METRIC_NAMES } from './support/metric-names.ts'
import { ROOT } from './support/source-tree.ts'
import { temporaryDirectory } from './support/temporary-directory.ts'

const read = (name: string): string => readFileSync(join(ROOT, 'docs', name), 'utf8')
const UNITS = ['deploy/flannelette.service', 'deploy/flanneld.service.d/flannelette.conf']

/** Names of metrics in a text that we do not have; a histogram has three series. */
function unknownMetrics(text: string): string[] {
  const named = text.match(/\bflannelette_[a-z_]+/g) ?? []
  return named.filter((name) => !METRIC_NAMES.includes(name.replace(/(batch_packets)_(bucket|sum|count)$/, '$1')))
}

/** Settings of a unit file in order: `Service.Type` → its values. */
function settingsOf(text: string): Map<string, string[]> {
  const settings = new Map<string, string[]>()
  let section = ''
  for (const line of text.split('\n')) {
    section = /^\[(.+)\]$/.exec(line)?.[1] ?? section
    const [, name, value] = /^(\w+)=(.*)$/.exec(line) ?? []
    if (name !== undefined) settings.set(`${section}.${name}`, [...(settings.get(`${section}.${name}`) ?? []), value!])
  }
  return settings
}

test('metrics that do not exist are noticed', () => {
  expect(unknownMetrics('rate(flannelette_planted_total[5m]) + flannelette_lease_conflicts')).toEqual([
    'flannelette_planted_total',
  ])
})

describe('the dashboard', () => {
  const dashboard = JSON.parse(read('deploy/grafana.json')) as {
    panels: { id: number; targets: { expr: string }[] }[]
  }

  test('asks for metrics that exist, and leaves none out', () => {
    const text = JSON.stringify(dashboard.panels)
    expect(unknownMetrics(text)).toEqual([])
    expect(METRIC_NAMES.filter((name) => !text.includes(name))).toEqual([])
  })

  test('has panels with an id and a query each', () => {
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length)
    expect(dashboard.panels.every(({ targets }) => targets.every(({ expr }) => balanced(expr)))).toBe(true)
  })
})

test('alert rules are whole, ask for metrics that exist, and tell what to do', () => {
  type Rule = { alert: string; expr: string; labels: { severity: string }; annotations: Record<string, string> }
  const { groups } = parse(read('deploy/alerts.yaml')) as { groups: { name: string; rules: Rule[] }[] }
  const rules = groups.flatMap((group) => group.rules)
  expect(rules.length).toBeGreaterThan(5)
  for (const { alert, expr, labels, annotations } of rules) {
    expect(unknownMetrics(expr), alert).toEqual([])
    expect(balanced(expr), alert).toBe(true)
    expect(['info', 'warning', 'critical']).toContain(labels.severity)
    expect(Object.keys(annotations).sort()).toEqual(['description', 'summary'])
  }
})

test('docs/operations.md describes every metric, and none that does not exist', () => {
  const page = read('operations.md')
  expect(METRIC_NAMES.filter((name) => !page.includes(`\`${name}`))).toEqual([])
  expect(unknownMetrics(page)).toEqual([])
})

describe.each(UNITS)('%s', (name) => {
  const settings = settingsOf(read(name))
  const command = settings.get('Service.ExecStart')!.at(-1)!

  test('waits for the word of the daemon itself, and for its signs of life', () => {
    expect(settings.get('Service.Type')).toEqual(['notify'])
    expect(settings.get('Service.NotifyAccess')).toEqual(['main'])
    expect(Number(settings.get('Service.WatchdogSec'))).toBeGreaterThan(5)
  })

  test('has the daemon look again at a reload', () => {
    expect(settings.get('Service.ExecReload')!.at(-1)).toBe('/bin/kill -HUP $MAINPID')
  })

  test('keeps subnet.env over a restart', () => {
    expect(settings.get('Service.RuntimeDirectory')![0]).toMatch(/^flannel /)
    expect(settings.get('Service.RuntimeDirectoryPreserve')).toEqual(['yes'])
  })

  test('starts the daemon by flags that exist', () => {
    expect(command).toMatch(/^\/usr\/bin\/env flannelette run /)
    const flags = runCommand(
      async () => 0,
      () => {},
    ).options.map(({ long }) => long)
    for (const flag of command.match(/--[a-z-]+/g) ?? []) expect(flags).toContain(flag)
  })
})

test('the drop-in takes the old command away before it gives its own', () => {
  expect(settingsOf(read(UNITS[1]!)).get('Service.ExecStart')).toHaveLength(2)
  expect(settingsOf(read(UNITS[1]!)).get('Service.ExecStart')![0]).toBe('')
})

test('systemd takes the unit, and flanneld’s own with the drop-in', (context) => {
  if (spawnSync('systemd-analyze', ['--version']).error !== undefined) context.skip('no systemd-analyze here')
  const directory = temporaryDirectory()
  const own = join(directory, 'flannelette.service')
  copyFileSync(join(ROOT, 'docs', UNITS[0]!), own)
  expect(verify(own)).toBe('')
  const flanneld = join(directory, 'flanneld.service')
  mkdirSync(`${flanneld}.d`)
  execFileSync('cp', [join(ROOT, 'docs/deploy/flanneld.service.d/flannelette.conf'), `${flanneld}.d/`])
  execFileSync('sh', ['-c', 'printf "[Service]\\nType=simple\\nExecStart=/bin/true --old\\n" > "$0"', flanneld])
  expect(verify(flanneld)).toBe('')
})

function verify(unit: string): string {
  const { stderr, status } = spawnSync('systemd-analyze', ['verify', '--man=no', unit], { encoding: 'utf8' })
  // Units of the machine that it looks at on the way are not ours to judge.
  const complaints = stderr.split('\n').filter((line) => /flannel/.test(line))
  return complaints.length > 0 || status === 0 ? complaints.join('\n') : ''
}

function balanced(expression: string): boolean {
  const open: string[] = []
  for (const character of expression.replace(/"[^"]*"/g, '')) {
    if ('([{'.includes(character)) open.push(character)
    else if (')]}'.includes(character) && '([{'.indexOf(open.pop() ?? '') !== ')]}'.indexOf(character)) return false
  }
  return open.length === 0
}
