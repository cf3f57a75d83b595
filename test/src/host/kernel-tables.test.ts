// What the kernel counts on its VTEP, read from its table of devices.
import { expect, test } from 'vitest'
import { deviceCounters } from '../../../src/host/kernel-tables.ts'

test('the device’s counters are read by column, and an absent device has none', () => {
  const table = [
    'Inter-|   Receive                                                |  Transmit',
    ' face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier',
    'flannel.10: 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9',
    ' flannel.1: 100 2 3 4 0 0 0 0 500 6 7 8 0 0 0 0',
  ].join('\n')
  expect(deviceCounters('flannel.1', table)).toEqual({
    'inbound.bytes.passed': 100,
    'inbound.packets.passed': 2,
    'inbound.errors': 3,
    'inbound.dropped': 4,
    'outbound.bytes.passed': 500,
    'outbound.packets.passed': 6,
    'outbound.errors': 7,
    'outbound.dropped': 8,
  })
  expect(deviceCounters('flannel.7', table)).toEqual({})
})
