// A daemon that is started as flanneld was: its flags with one dash, its variables, its form of log.
import { expect, test } from 'vitest'
import { mainProgram } from '../../src/lab/daemon-process.ts'
import { RunningDaemon, twoHosts } from '../support/daemon-under-test.ts'

test('a unit of flanneld needs another binary and a store, and nothing else', async () => {
  const [host] = twoHosts()
  const environment = ['FLANNELD_IFACE_REGEX=^192\\.0\\.2\\.', 'FLANNELD_IFACE=', 'FLANNELLETTE_SOURCE_PORTS=4']
  const flags = [
    '-iface=eth7',
    `-subnet-file=${host.subnetFile}`,
    '-iptables-forward-rules=false',
    '-v=4',
    '--healthz-port',
    '0',
  ]
  const ours = ['-store', `file:${host.store}`, '-state-dir', host.stateDirectory, '-log-format=klog']
  const daemon = new RunningDaemon(host, [
    'env',
    ...environment,
    process.execPath,
    mainProgram(),
    'run',
    ...flags,
    ...ours,
  ])
  await daemon.ready(0)
  expect(daemon.status).toMatchObject({ entropy: '4 source ports', node: { underlayAddress: host.address } })
  const lines = daemon.output.trimEnd().split('\n')
  expect(lines.filter((line) => !/^[IWE]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [a-z-]+:1\] /.test(line))).toEqual([])
  expect(daemon.output).toMatch(/^W.* underlay-passed-over:1\] there is no interface eth7 \(--iface eth7\)/m)
  expect(daemon.output).toMatch(/^I.* underlay-chosen:1\] .* how="--iface-regex \^192/m)
  expect((await daemon.end('SIGTERM')).exitCode).toBe(0)
})
