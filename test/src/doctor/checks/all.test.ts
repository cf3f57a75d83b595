// All checks of doctor together: on a healthy host, on one that shows little, and beside their page in the docs.
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { CHECKS, examine } from '../../../../src/doctor/checks/all.ts'
import { healthy, NOT_SEEN, neverRun, status, withStatus } from '../../../support/doctor-facts.ts'

test('finds nothing on a healthy host, and looks at everything', () => {
  const findings = examine(healthy())
  expect(findings.filter(({ severity }) => severity !== 'ok')).toEqual([])
  expect(CHECKS.map(({ id }) => id).filter((id) => !findings.some(({ check }) => check === id))).toEqual([])
})

test('asks a node whose backend has no device for none, nor for a port', () => {
  const { node } = status()
  const facts = withStatus({
    dataplane: 'none',
    driver: 'none',
    node: { ...node!, device: '', vni: 0, port: 0 },
  })
  const findings = examine({ ...facts, tunProblem: 'ENOENT', udpPorts: { seen: true, value: [] }, vxlan: 'absent' })
  expect(findings.filter(({ severity }) => severity === 'error' || severity === 'warning')).toEqual([])
  expect(findings.map(({ check }) => check)).not.toContain('overlay-device')
  expect(findings.map(({ check }) => check)).toContain('lease')
})

test('works on a host that no daemon has run on, without root: NOT_SEEN, never thrown', () => {
  const blind = neverRun({
    root: false,
    links: NOT_SEEN,
    routes: NOT_SEEN,
    udpPorts: NOT_SEEN,
    firewall: NOT_SEEN,
    managed: NOT_SEEN,
    subnetFile: NOT_SEEN,
    settings: new Map(),
  })
  expect(examine(blind).some(({ severity }) => severity === 'error')).toBe(false)
  expect(examine(blind).filter(({ severity }) => severity === 'unseen').length).toBeGreaterThan(5)
})

test('every check has its anchor in the docs, and every anchor its check', () => {
  const page = readFileSync('docs/troubleshooting.md', 'utf8')
  const anchors = [...page.matchAll(/<a id="doctor-([\w-]+)">/g)].map(([, id]) => id)
  expect(anchors.sort()).toEqual([...CHECKS.map(({ id }) => id), 'peer-matrix'].sort())
  for (const finding of examine(healthy())) expect(page).toContain(`<a id="${finding.docs.split('#')[1]}">`)
})
