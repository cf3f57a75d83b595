// Whether the underlay address is there, by the loopback interface of the machine that runs the tests.
import { expect, test } from 'vitest'
import { UnderlayPresence } from '../../../src/daemon/underlay-presence.ts'
import { ip } from '../../support/packets.ts'
import { RecordingLog } from '../../support/recording-log.ts'

const THERE = { underlayInterface: 'lo', underlayAddress: ip('127.0.0.1') }
const GONE = { underlayInterface: 'lo', underlayAddress: ip('192.0.2.1') }

function presence() {
  const log = new RecordingLog()
  return { presence: new UnderlayPresence(log), events: () => log.lines.map(({ event }) => event) }
}

test('an address that is gone is told once, and once more when it is back', () => {
  const { presence: address, events } = presence()
  address.look(THERE)
  expect([address.isLost, events()]).toEqual([false, []])
  for (let look = 0; look < 3; look++) address.look(GONE)
  expect([address.isLost, events()]).toEqual([true, ['underlay-lost']])
  for (let look = 0; look < 3; look++) address.look(THERE)
  expect([address.isLost, events()]).toEqual([false, ['underlay-lost', 'underlay-back']])
})

test('of another address nothing is known yet', () => {
  const { presence: address, events } = presence()
  address.look(GONE)
  address.forget()
  address.look(THERE)
  expect([address.isLost, events()]).toEqual([false, ['underlay-lost']])
})
