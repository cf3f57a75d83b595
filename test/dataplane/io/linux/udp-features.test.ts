// When segmented sends are used, and what is said about it.
import { describe, expect, test } from 'vitest'
import type { SelfTestResult } from '../../../../dataplane/io/linux/gso-self-test.ts'
import { chooseUdpFeatures, type UdpFeatureFacts } from '../../../../dataplane/io/linux/udp-features.ts'

const choose = (facts: Partial<UdpFeatureFacts> & { readonly result?: SelfTestResult } = {}) => {
  const { result = 'passed', ...rest } = facts
  return chooseUdpFeatures({
    opened: { maxSegments: 127, receivesMerged: true },
    mode: 'auto',
    kernelRelease: '6.18.44',
    selfTest: () => result,
    ...rest,
  })
}
const segments = (facts: Parameters<typeof choose>[0]) => {
  const { maxSegments, features } = choose(facts)
  const { on, why, downgrade } = features.find(({ name }) => name === 'udp-gso')!
  expect(maxSegments > 1).toBe(on)
  return { on, why, downgrade }
}

describe('segmented sends', () => {
  test('are used where the kernel grants them and the self-test passes', () => {
    expect(segments({})).toEqual({ on: true, why: '127 segments a send, self-test passed', downgrade: false })
  })

  test.each(['7.0.0', '7.0.9-amd64', '7.1.4'])('are left alone on kernel %s, which damages them', (kernelRelease) => {
    expect(segments({ kernelRelease })).toMatchObject({ on: false, downgrade: true })
    expect(segments({ kernelRelease, mode: 'on' })).toMatchObject({ on: true })
  })

  test.each(['6.19.12', '7.1.5', '7.2.0', '8.0.1'])('are used on kernel %s', (kernelRelease) => {
    expect(segments({ kernelRelease })).toMatchObject({ on: true })
  })

  test.each(['refused', 'damaged'] as const)('are lost when the self-test is %s, unless they are forced', (result) => {
    expect(segments({ result })).toMatchObject({ on: false, downgrade: true })
    expect(segments({ result, mode: 'on' })).toMatchObject({ on: true })
  })

  test('are used when the self-test proves nothing', () => {
    expect(segments({ result: 'unknown' })).toMatchObject({ on: true })
  })

  test('are lost when the kernel does not grant them, also when they are forced', () => {
    for (const mode of ['auto', 'on'] as const) {
      expect(segments({ mode, opened: { maxSegments: 1, receivesMerged: true } })).toMatchObject({
        ...{ on: false, downgrade: true },
      })
    }
  })

  test('are off when somebody wants it so, which is no downgrade, and needs no self-test', () => {
    const selfTest = () => {
      throw new Error('nobody asked for it')
    }
    expect(segments({ mode: 'off', selfTest })).toMatchObject({ on: false, downgrade: false })
  })
})

test.each([true, false])('merged receives are on (%s) as the kernel granted', (receivesMerged) => {
  const { features } = choose({ opened: { maxSegments: 127, receivesMerged } })
  expect(features.find(({ name }) => name === 'udp-gro')).toMatchObject({
    on: receivesMerged,
    downgrade: !receivesMerged,
  })
})
