// Which peers an extension was told of, from one run to the next: what a crash, a full disk and rubbish leave of it.
import { appendFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { TOLD_PEERS_FILE, ToldPeers } from '../../../src/daemon/told-peers.ts'
import { ipv6Lease, peerLease } from '../../support/peer-lease.ts'
import { RecordingLog } from '../../support/recording-log.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

const lease = (n: number) => peerLease(`10.5.${n}.0/24`, `192.0.2.${n}`, '02:00:00:00:00:02')
const DUAL = { ...lease(9), ipv6Subnet: 'fd00:5:0:9::/64' }

/** The memory as a run finds it. */
function run(directory = temporaryDirectory()) {
  const log = new RecordingLog()
  const told = new ToldPeers(directory, log)
  const path = join(directory, TOLD_PEERS_FILE)
  return { directory, path, log, told, peers: told.read() }
}

test('a first run remembers nobody, warns of nothing and leaves no file', () => {
  const { directory, peers, log } = run()
  expect([peers.size, log.lines, readdirSync(directory)]).toEqual([0, [], []])
})

test('those that were told and not taken back are there at the next start, as they were', () => {
  const { directory, told } = run()
  for (const peer of [lease(2), lease(3), DUAL, ipv6Lease(4)]) told.add(peer)
  told.remove('10.5.3.0/24')
  const again = run(directory)
  expect([...again.peers.values()]).toEqual([lease(2), DUAL, ipv6Lease(4)].map((peer) => ({ ...peer, revision: 0 })))
  expect(again.log.lines).toEqual([])
  expect([...run(directory).peers.keys()]).toEqual([...again.peers.keys()])
})

test('another attempt, and a renewal, write nothing; another form does', () => {
  const { path, told } = run()
  told.add(lease(2))
  const before = readFileSync(path, 'utf8')
  told.add({ ...lease(2), revision: 99, expiresAtMs: 1 })
  told.remove('10.5.77.0/24')
  expect(readFileSync(path, 'utf8')).toBe(before)
  told.add(peerLease('10.5.2.0/24', '192.0.2.22', '02:00:00:00:00:02'))
  expect([...run(join(path, '..')).peers.values()]).toMatchObject([{ attributes: { publicIp: 0xc0000216 } }])
})

test('half a line, as a full disk leaves it, costs neither the line before nor the one behind', () => {
  const { directory, path, told } = run()
  told.add(lease(2))
  appendFileSync(path, '\n{"Told":{"Key":"10.5.3.0-2')
  told.add(lease(4))
  const again = run(directory)
  expect([...again.peers.keys()]).toEqual(['10.5.2.0/24', '10.5.4.0/24'])
  expect(again.log.of('state-unreadable').map(({ message }) => message)).toEqual([
    `of ${path} lines cannot be read and are ignored: 1`,
  ])
  expect(run(directory).log.lines).toEqual([])
})

test.each([
  ['another program’s file', 'PK\u0003\u0004\nhello\n[]\nnull\n7\n"x"\n{}\n'],
  ['a key that is none', '{"Told":{"Key":"10.5.2.0","Content":"{}"}}\n'],
  ['content that is no lease', '{"Told":{"Key":"10.5.2.0-24","Content":"rubbish"}}\n'],
  ['a peer without content', '{"Told":null}\n{"Gone":5}\n'],
])('%s is nobody’s memory: it is warned about once, and what comes is remembered', (_, content) => {
  const directory = temporaryDirectory()
  writeFileSync(join(directory, TOLD_PEERS_FILE), content)
  const { peers, log, told } = run(directory)
  expect([peers.size, log.of('state-unreadable').length]).toEqual([0, 1])
  told.add(lease(2))
  expect([...run(directory).peers.keys()]).toEqual(['10.5.2.0/24'])
})

test('a file that can be neither read nor written is warned about, and stops nothing', () => {
  const directory = temporaryDirectory()
  mkdirSync(join(directory, TOLD_PEERS_FILE))
  const { peers, told, log } = run(directory)
  told.add(lease(2))
  expect([peers.size, log.lines.map(({ event }) => event)]).toEqual([0, ['state-unreadable', 'state-unwritable']])
})

test('the file does not grow with each peer that comes and goes', () => {
  const { directory, path, told } = run()
  told.add(lease(2))
  for (let round = 0; round < 1500; round++) {
    told.add(lease(3))
    told.remove('10.5.3.0/24')
  }
  expect(readFileSync(path, 'utf8').split('\n').filter(Boolean).length).toBeLessThan(1100)
  expect([...run(directory).peers.keys()]).toEqual(['10.5.2.0/24'])
})
