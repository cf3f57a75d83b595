// The same questions to every peer, over a network that is only described: what their answers mean.
import { expect, test } from 'vitest'
import { askPeers, judgePeers } from '../../../src/doctor/peer-matrix.ts'
import type { LadderPlace } from '../../../src/doctor/rung.ts'
import { type Network, PLACE, tools } from '../../support/described-network.ts'
import { peer, status, withStatus } from '../../support/doctor-facts.ts'

/** As PLACE, with DF set. */
const TELLING: LadderPlace = { ...PLACE, outerDf: 'set' }

const ALL = ['192.0.2.2', '10.244.2.0', '10.244.2.1']
const ask = (network: Network) => askPeers(withStatus({ peers: [peer(2)] as never }).view, TELLING, tools(network))

test.each([
  ['all well', { answers: ALL }, null, /./],
  ['dead', { answers: [] }, 'error', /answers neither/],
  ['no daemon', { answers: ALL.slice(0, 1), refused: true }, 'error', /refuses UDP/],
  ['blocked', { answers: ALL.slice(0, 1) }, 'error', /nothing comes back through the tunnel/],
  [
    'a hole',
    { answers: ALL, limits: { '10.244.2.0': 1400 } },
    'error',
    /up to 1400 bytes, those of 1401 to 1450 vanish: there is a hole in the MTU/,
  ],
  [
    'a small way, told',
    { answers: ALL, limits: { '10.244.2.0': 1400 }, tells: true },
    'note',
    /up to 1400 of 1450 bytes; pods are told/,
  ],
  ['ICMP blocked', { answers: ALL.slice(1) }, 'note', /does not answer ICMP/],
] as const)('%s', async (_, network, severity, message) => {
  const findings = judgePeers(await ask(network), status().node, TELLING)
  if (severity === null) expect(findings).toEqual([])
  else expect(findings).toMatchObject([{ check: 'peer-matrix', severity, message: expect.stringMatching(message) }])
})
