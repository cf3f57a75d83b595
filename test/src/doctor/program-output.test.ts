// What programs of the host print, as doctor reads it.
import { expect, test } from 'vitest'
import { parseManaged, parsePorts } from '../../../src/doctor/program-output.ts'

test('ss: who holds which UDP port, also the kernel', () => {
  const text = [
    'UNCONN 0      0      192.0.2.1:8472 0.0.0.0:*    users:(("node",pid=26,fd=22),("node",pid=26,fd=23),("ip",pid=31,fd=22))',
    'UNCONN 0      0      0.0.0.0:8472 0.0.0.0:*',
    'UNCONN 0      0      [::]:53 [::]:*    users:(("named",pid=7,fd=5))',
    '',
  ].join('\n')
  expect(parsePorts(text)).toEqual([
    {
      port: 8472,
      address: '192.0.2.1',
      holders: [
        { pid: 26, program: 'node' },
        { pid: 31, program: 'ip' },
      ],
    },
    { port: 8472, address: '0.0.0.0', holders: [] },
    { port: 53, address: '[::]', holders: [{ pid: 7, program: 'named' }] },
  ])
})

test('nmcli and networkctl: who manages what', () => {
  const nmcli = 'eth0:connected\nflannel.1:unmanaged\ncni0:connected (externally)\n'
  const networkctl = '  1 lo        loopback carrier  unmanaged\n  2 flannel.1 none     routable configured\n'
  expect(parseManaged(nmcli, networkctl)).toEqual([
    { device: 'eth0', by: 'NetworkManager' },
    { device: 'cni0', by: 'NetworkManager' },
    { device: 'flannel.1', by: 'systemd-networkd' },
  ])
})
