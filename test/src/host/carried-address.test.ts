// Whether an interface carries an address, with what the kernel lists in the place of a host.
import { networkInterfaces } from 'node:os'
import { beforeEach, expect, test, vi } from 'vitest'
import { parseIpv4 } from '../../../dataplane/wire/address.ts'
import { carriesAddress } from '../../../src/host/carried-address.ts'

vi.mock('node:os', () => ({ networkInterfaces: vi.fn() }))

const listing = vi.mocked(networkInterfaces)
const ADDRESS = parseIpv4('192.0.2.1')!

beforeEach(() => {
  listing.mockReset()
})

test('an address is carried by its interface, also under a label, and by no other', () => {
  const there = [{ address: '192.0.2.1' }] as NonNullable<ReturnType<typeof networkInterfaces>[string]>
  listing.mockReturnValue({ 'eth0:1': there, eth1: [] })
  expect(carriesAddress('eth0', ADDRESS)).toBe(true)
  expect(carriesAddress('eth1', ADDRESS)).toBe(false)
  expect(carriesAddress('eth', ADDRESS)).toBe(false)
})

test('where nothing can be looked at no address is said to be lost', () => {
  listing.mockImplementation(() => {
    throw new Error('EMFILE: too many open files, uv_interface_addresses')
  })
  expect(carriesAddress('eth0', ADDRESS)).toBe(true)
})

test('the host is asked once for all that is asked in one breath, and anew after that', async () => {
  listing.mockReturnValue({})
  expect([carriesAddress('eth0', ADDRESS), carriesAddress('eth1', ADDRESS)]).toEqual([false, false])
  expect(listing).toHaveBeenCalledTimes(1)
  await Promise.resolve()
  listing.mockReturnValue({ eth0: [{ address: '192.0.2.1' }] as never })
  expect(carriesAddress('eth0', ADDRESS)).toBe(true)
})
