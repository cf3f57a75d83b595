// The plain UDP encapsulation: nothing in front of the packet, nothing to check but that there is one.
import { describe, expect, it } from 'vitest'
import { OVERHEAD_BYTES } from '../../../dataplane/encap/overhead.ts'
import { UdpEncapsulation } from '../../../dataplane/encap/udp.ts'
import { icmpEcho, viewOf } from '../../support/packets.ts'

describe('plain UDP', () => {
  const encapsulation = new UdpEncapsulation()

  it('adds IP and UDP headers of 28 bytes, and none inside them', () => {
    expect(OVERHEAD_BYTES.udp).toBe(28)
    expect(encapsulation.headerBytes).toBe(0)
  })

  it('writes nothing', () => {
    const bytes = new Uint8Array(8).fill(0xa5)
    encapsulation.write()
    expect(bytes).toEqual(new Uint8Array(8).fill(0xa5))
  })

  it('takes any payload that is not empty: the packet speaks for itself', () => {
    const packet = icmpEcho()
    expect(encapsulation.check(viewOf(packet), 0, packet.length)).toBeNull()
    expect(encapsulation.check(viewOf(packet), 0, 1)).toBeNull()
    expect(encapsulation.check(viewOf(packet), 0, 0)).toBe('truncated')
  })
})
