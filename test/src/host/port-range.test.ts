// The kernel's range of local ports, as it prints it.
import { expect, test } from 'vitest'
import { localPortRange, parsePortRange } from '../../../src/host/port-range.ts'

test.each([
  ['32768\t60999\n', 32768, 28232],
  ['1024 65535', 1024, 64512],
  ['50000 50000', 50000, 1],
])('%j is the first port and their number', (text, firstPort, ports) => {
  expect(parsePortRange(text)).toEqual({ firstPort, ports })
})

test.each(['', 'x y', '60999 32768', '0 100', '40000 65536', '40000'])('%j is no range: the usual one', (text) => {
  expect(parsePortRange(text)).toEqual({ firstPort: 32768, ports: 28232 })
})

test('this host has one', () => {
  expect(localPortRange().ports).toBeGreaterThan(0)
})
