// A gigabyte from node to node over an underlay with faults: every byte arrives, in order.
import { describe, expect, test } from 'vitest'
import { checkTransfer, FAULTY_UNDERLAYS } from '../support/faulty-underlays.ts'

const BYTES = 1024 * 1024 * 1024

describe('1 GiB', () => {
  test.each(FAULTY_UNDERLAYS)('arrives whole over an underlay with $name', (underlay) => {
    checkTransfer(underlay, BYTES, expect)
  })
})
