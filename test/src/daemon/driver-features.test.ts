// What a driver does without, and why it says so.
import { describe, expect, test } from 'vitest'
import { lost, unwanted, works } from '../../../dataplane/index.ts'
import {
  joiningFeatures,
  readingFeatures,
  receivesTrains,
  socketFeatures,
} from '../../../src/daemon/driver-features.ts'

const joined = (driver: 'offload' | 'plain' | 'dgram' | 'raw', tunOffload = true) =>
  joiningFeatures({ driver, tunOffload }, '6.12.0').filter(({ on }) => on).length

describe('joined packets towards the device', () => {
  test('are written by every driver but plain, which has no header to say so', () => {
    expect([joined('offload'), joined('dgram'), joined('raw'), joined('plain')]).toEqual([5, 5, 5, 0])
  })

  test('are given up with the device’s offloads', () => {
    expect([joined('dgram', false), joined('raw', false)]).toEqual([0, 0])
  })
})

describe('super-packets from the device that nobody wants', () => {
  const whyOff = (driver: 'offload' | 'plain', tunOffload: boolean) =>
    readingFeatures({ driver, tunOffload }, [unwanted('tun-tso', 'not asked for')])[0]?.why

  test('say whose wish that is', () => {
    expect(whyOff('offload', false)).toBe('switched off by --tun-offload off')
    expect(whyOff('plain', true)).toBe('one packet a call')
  })

  test('leave alone what the kernel grants or refuses', () => {
    const features = [works('tun-tso', 'granted'), lost('tun-uso', 'refused')]
    expect(readingFeatures({ driver: 'raw', tunOffload: false }, features)).toEqual(features)
  })
})

describe('trains of datagrams', () => {
  test('are received where control data is seen', () => {
    expect((['offload', 'raw', 'plain', 'dgram'] as const).filter(receivesTrains)).toEqual(['offload', 'raw'])
  })

  test.each(['plain', 'dgram', 'raw'] as const)(
    'are never sent by the %s driver, and that is no downgrade',
    (driver) => {
      const feature = socketFeatures(driver, true).find(({ name }) => name === 'udp-gso')
      expect(feature).toMatchObject({ on: false, downgrade: false })
    },
  )

  test('that the kernel does not merge are a downgrade of the raw driver alone', () => {
    const merged = (driver: 'plain' | 'dgram' | 'raw', granted: boolean) =>
      socketFeatures(driver, granted).find(({ name }) => name === 'udp-gro')
    expect(merged('raw', true)).toMatchObject({ on: true })
    expect(merged('raw', false)).toMatchObject({ on: false, downgrade: true })
    expect(merged('dgram', false)).toMatchObject({ on: false, downgrade: false })
  })
})
