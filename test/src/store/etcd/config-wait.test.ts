// The wait for a config in etcd: one question and one stream, whatever becomes of both, and nothing left behind.
import { expect, onTestFinished, test, vi } from 'vitest'
import { EtcdStore } from '../../../../src/store/etcd/etcd-store.ts'
import { RecordingLog } from '../../../support/recording-log.ts'
import { StubEtcd } from '../../../support/stub-etcd.ts'
import { VirtualClock } from '../../../support/virtual-clock.ts'

/** A wait that has begun. */
async function waiting(prepare: (etcd: StubEtcd) => void = () => {}) {
  const clock = new VirtualClock()
  const etcd = new StubEtcd(clock)
  prepare(etcd)
  const store = new EtcdStore('etcd', '/net', etcd, { clock, log: new RecordingLog(), random: () => 0 })
  const [end, told] = [new AbortController(), vi.fn()]
  const done = store.awaitNetworkConfig(end.signal).then(told)
  onTestFinished(async () => {
    end.abort()
    await done
    expect([clock.timers, etcd.streams]).toEqual([0, 0])
  })
  await clock.advance(1000)
  return { clock, etcd, told, end }
}

test('hears of the config, and of nothing else', async () => {
  const { clock, etcd, told } = await waiting()
  etcd.put('/net/config2', 'x')
  etcd.put('/net/subnets/10.244.1.0-24', 'x')
  await clock.advance(60_000)
  expect(told).not.toHaveBeenCalled()
  etcd.put('/net/config', '{}')
  await clock.advance(0)
  expect(told).toHaveBeenCalled()
})

test('does not miss what was written between the question and the stream', async () => {
  const { told } = await waiting((etcd) => {
    const ask = etcd.range.bind(etcd)
    etcd.range = async (request) => {
      const answer = await ask(request)
      etcd.put('/net/config', '{}')
      return answer
    }
  })
  expect(told).toHaveBeenCalled()
})

test('takes a deletion for no config', async () => {
  const { clock, etcd, told } = await waiting()
  etcd.put('/net/other', 'x')
  etcd.delete('/net/other')
  etcd.say({ events: [{ type: 'delete', pair: { ...PAIR, modRevision: etcd.revision } }] })
  await clock.advance(1000)
  expect(told).not.toHaveBeenCalled()
})

const PAIR = { key: '/net/config', value: '', createRevision: 0, modRevision: 0, leaseId: null }

test.each([
  ['a stream that breaks', (etcd: StubEtcd) => etcd.breakStreams()],
  ['a history that was compacted', (etcd: StubEtcd) => etcd.say({ canceled: true, compactRevision: 9 })],
])('asks nothing more after %s, and ends with its signal', async (_, trouble) => {
  const { clock, etcd, told, end } = await waiting()
  const { length } = etcd.asked
  trouble(etcd)
  etcd.put('/net/config', '{}')
  await clock.advance(60_000)
  expect([etcd.asked.length, told.mock.calls.length]).toEqual([length, 0])
  end.abort()
  await clock.advance(0)
  expect(told).toHaveBeenCalled()
})

test('a server that is away is asked once', async () => {
  const { etcd, clock } = await waiting((stub) => {
    stub.away = true
  })
  await clock.advance(60_000)
  expect(etcd.asked).toEqual(['range'])
})
