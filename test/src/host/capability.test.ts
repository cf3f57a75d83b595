// What /proc says of the right to change the network.
import { describe, expect, test } from 'vitest'
import { mayConfigureNetwork } from '../../../src/host/capability.ts'

const ALL = '000001ffffffffff'
const ALL_BUT = '000001ffffffefff'
const NONE = '0000000000000000'
const ONLY = '0000000000001000'
const status = (uid: number, effective: string, ambient = NONE) =>
  `Name:\tnode\nUid:\t1000\t${uid}\t0\t0\nCapInh:\t${ALL}\nCapEff:\t${effective}\nCapBnd:\t${ALL}\nCapAmb:\t${ambient}\n`

describe('the network may be changed', () => {
  test.each([
    ['by root', status(0, ALL), true],
    ['by root with this capability alone', status(0, ONLY), true],
    ['by root without it', status(0, ALL_BUT), false],
    ['by another user who passes it on', status(1000, ONLY, ONLY), true],
    ['by another user whose programs do not get it', status(1000, ONLY), false],
    ['by another user without it', status(1000, NONE), false],
    ['where nothing is said', 'Name:\tnode\n', true],
  ])('%s', (_, text, expected) => {
    expect(mayConfigureNetwork(text)).toBe(expected)
  })
})
