// Whom a word on the command line of `ping` means.
import { expect, test } from 'vitest'
import { findTarget } from '../../../src/doctor/target.ts'
import { healthy, peer, withStatus } from '../../support/doctor-facts.ts'

test('a node is found by public address, subnet, any address in it, and by name', () => {
  const { view } = healthy()
  const names = new Map([['host2', '192.0.2.2']])
  for (const word of ['192.0.2.2', '10.244.2.0/24', '10.244.2.99', 'host2']) {
    expect(findTarget(word, view, names)).toMatchObject({ kind: 'peer', lease: { publicIp: '192.0.2.2' } })
  }
  const peers = [peer(2, { ipv6Subnet: 'fd00:0:0:2::/64' })]
  const dual = withStatus({ peers: peers as never }).view
  for (const word of ['fd00:0:0:2::/64', 'fd00:0:0:2::17']) {
    expect(findTarget(word, dual)).toMatchObject({ kind: 'peer', lease: { publicIp: '192.0.2.2' } })
  }
  expect(findTarget('fd00:0:0:9::1', dual)).toMatchObject({ kind: 'unknown' })
  expect(findTarget('host3', view, names)).toBeNull()
  expect(findTarget('10.244.2.0/25', view)).toMatchObject({ kind: 'unknown' })
})
