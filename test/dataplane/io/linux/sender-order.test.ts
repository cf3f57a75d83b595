// The order in which a batch is sent: port by port, each port's messages as they came.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { SenderOrder } from '../../../../dataplane/io/linux/sender-order.ts'
import { SendBatch } from '../../../../dataplane/io/send-batch.ts'
import { PacketMemory } from '../../../../dataplane/memory/packet-memory.ts'

const MESSAGES = 64
const batch = new SendBatch(new PacketMemory(1024 * 1024), 63)
const order = new SenderOrder(MESSAGES)

test('messages of one port stay together and in order', () => {
  const senders = fc.array(fc.integer({ min: 0, max: 20 }), { maxLength: MESSAGES })
  fc.assert(
    fc.property(senders, (all) => {
      batch.clear()
      for (const sender of all) batch.frame(0xc0000202, 8472, 0, 100, true, sender)
      const indices = [...order.of(batch).subarray(0, all.length)]
      const wanted = all.map((sender, n) => [sender, n] as const).sort((a, b) => a[0] - b[0] || a[1] - b[1])
      expect(indices).toEqual(wanted.map(([, n]) => n))
    }),
  )
})
