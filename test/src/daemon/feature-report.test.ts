// What the daemon says of the offloads: one line for each that the kernel refuses, a counter, and the state of all.
import { describe, expect, test } from 'vitest'
import { lost, unwanted, works } from '../../../dataplane/io/feature.ts'
import { joiningFeatures } from '../../../src/daemon/driver-features.ts'
import { FeatureReport } from '../../../src/daemon/feature-report.ts'
import { RecordingLog } from '../../support/recording-log.ts'

function report() {
  const log = new RecordingLog()
  const features = new FeatureReport(log)
  features.begin([
    works('udp-gso', '127 segments a send'),
    unwanted('tun-tso', 'not asked for'),
    lost('tun-uso', 'refused by the kernel'),
  ])
  return { log, features }
}

describe('a feature', () => {
  test('that the kernel refused at start is one log line and one in the counters', () => {
    const { log, features } = report()
    expect(log.of('downgrade')).toEqual([
      {
        level: 'warn',
        event: 'downgrade',
        message: 'tun-uso is not used: refused by the kernel',
        fields: { feature: 'tun-uso' },
      },
    ])
    expect(features.counters()).toEqual({ 'downgrade.udp-gso': 0, 'downgrade.tun-tso': 0, 'downgrade.tun-uso': 1 })
  })

  test('that the engine gave up at work is told once', () => {
    const { log, features } = report()
    for (let look = 0; look < 3; look++) features.look({ 'downgrade.udp-gso': 1 })
    expect(log.of('downgrade').map(({ fields }) => fields.feature)).toEqual(['tun-uso', 'udp-gso'])
    expect(features.counters()['downgrade.udp-gso']).toBe(1)
    expect(features.features[0]).toMatchObject({ on: false, why: 'refused by the kernel at work' })
  })

  test('that is tried again after a refusal works until it is refused once more', () => {
    const { log, features } = report()
    const states = [1, 1, 2].map((refusals, look) => {
      features.look({ 'downgrade.udp-gso': refusals })
      const [{ on } = { on: null }] = features.features
      if (look === 0) features.tryAgain({ 'downgrade.udp-gso': refusals })
      return [on, features.counters()['downgrade.udp-gso']]
    })
    expect(states).toEqual([
      [false, 0],
      [true, 0],
      [false, 1],
    ])
    expect(log.of('downgrade').map(({ fields }) => fields.feature)).toEqual(['tun-uso', 'udp-gso', 'udp-gso'])
  })

  test('that workers of before were refused is not held against those of now', () => {
    const { features } = report()
    features.begin([works('udp-gso', '127 segments a send')], { 'downgrade.udp-gso': 1 })
    features.look({ 'downgrade.udp-gso': 1 })
    expect(features.features[0]).toMatchObject({ on: true })
  })

  test('that works is not spoken of', () => {
    const { log, features } = report()
    features.look({ 'downgrade.udp-gso': 0 })
    expect(log.of('downgrade')).toHaveLength(1)
    expect(features.features[0]).toMatchObject({ on: true })
  })
})

describe('packets are joined for the device', () => {
  const joined = (wishes: Parameters<typeof joiningFeatures>[0], kernel = '6.18.1') =>
    joiningFeatures(wishes, kernel)
      .filter(({ on }) => on)
      .map(({ name }) => name)

  test('by the offload driver, all kinds', () => {
    expect(joined({ driver: 'offload', tunOffload: true })).toHaveLength(5)
  })

  test('neither without offloads on the device nor by the plain driver, and that is no downgrade', () => {
    for (const wishes of [
      { driver: 'offload', tunOffload: false },
      { driver: 'plain', tunOffload: true },
    ] as const) {
      expect(joined(wishes)).toEqual([])
      expect(joiningFeatures(wishes, '6.1.0').some(({ downgrade }) => downgrade)).toBe(false)
    }
  })

  test('but not UDP before Linux 6.8.5, which may lose it', () => {
    expect(joined({ driver: 'offload', tunOffload: true }, '6.8.4')).not.toContain('tun-gso-udp')
    expect(joined({ driver: 'offload', tunOffload: true }, '6.8.5')).toContain('tun-gso-udp')
  })
})
