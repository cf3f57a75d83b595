// The underlay address is replaced under every driver, each of which holds its sockets in another way.
import { describe } from 'vitest'
import { DRIVERS } from '../../src/config/flag-table.ts'
import { movesItsUnderlay } from '../support/underlay-move.ts'

describe.each(DRIVERS)('with --driver %s', (driver) => {
  const name = `move${driver}`
  movesItsUnderlay('two hosts that change their addresses at once', { name, daemonArguments: ['--driver', driver] })
})

describe('with several workers', () => {
  const daemonArguments = ['--workers', '2']
  movesItsUnderlay('two hosts that change their addresses at once', { name: 'moveworkers', daemonArguments })
})

describe('with tunnels over IPv6', () => {
  const hosts = 'a userspace and a kernel host that change their addresses at once'
  movesItsUnderlay(hosts, { name: 'move6', kernel: ['host2'], family: 'ipv6', andBack: true })
})
