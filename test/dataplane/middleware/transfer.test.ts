// 64 MiB from node to node over an underlay with faults: every byte arrives, in order. The gigabyte form is a long
// test.
import { describe, expect, test } from 'vitest'
import { checkTransfer, FAULTY_UNDERLAYS } from '../../support/faulty-underlays.ts'

const BYTES = 64 * 1024 * 1024 + 77

describe('64 MiB', () => {
  test.each(FAULTY_UNDERLAYS)('arrive whole over an underlay with $name', (underlay) => {
    checkTransfer(underlay, BYTES, expect)
  })
})
