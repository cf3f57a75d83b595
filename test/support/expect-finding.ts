// What the tables of doctor's checks hold, and how a row of them is looked at.
import { expect } from 'vitest'
import { CHECKS } from '../../src/doctor/checks/all.ts'
import { findingsOf } from '../../src/doctor/checks/check.ts'
import type { Facts } from '../../src/doctor/facts.ts'
import type { Severity } from '../../src/doctor/finding.ts'

/** Check, what is wrong, the host, and what is said of it. */
export type Row = readonly [check: string, what: string, facts: Facts, severity: Severity, message: RegExp]

/** The check says so, and says what to do about it when it is bad. */
export function expectFinding(id: string, facts: Facts, severity: Severity, message: RegExp): void {
  const check = CHECKS.find((one) => one.id === id)
  const findings = check === undefined ? [] : findingsOf(check, facts)
  const found = findings.find((finding) => message.test(finding.message))
  expect(found, JSON.stringify(findings)).toMatchObject({ severity, check: id })
  if (severity === 'error' || severity === 'warning') expect(found?.remedy).toMatch(/\w/)
}
