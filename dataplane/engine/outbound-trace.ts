// Steps of the way out that are told of the outside of packets: what a read brought, and what became of a message.
import { EINPROGRESS } from '../io/errno.ts'
import type { SendBatch } from '../io/send-batch.ts'
import type { StepSink } from '../step.ts'
import * as virtioNet from '../wire/virtio-net.ts'
import { vnetOf } from './outbound-check.ts'
import type { OuterAddresses } from './outer-addresses.ts'

export function traceRead(sink: StepSink, view: DataView, id: number, at: number, length: number): void {
  const vnet = vnetOf(at)
  sink.step({
    kind: 'tun-read',
    id,
    at,
    length,
    gsoType: virtioNet.getGsoType(view, vnet),
    gsoSize: virtioNet.getGsoSize(view, vnet),
    needsChecksum: (virtioNet.getFlags(view, vnet) & virtioNet.FLAG_NEEDS_CSUM) !== 0,
  })
}

/** What is under way is told when it has settled. */
export function traceSend(sink: StepSink, batch: SendBatch, message: number, outer: OuterAddresses): void {
  if (batch.errno[message] === EINPROGRESS) return
  sink.step({
    kind: 'send',
    message: batch.firstSerial + message,
    address: outer.addressOf(batch.address[message]!),
    port: batch.port[message]!,
    packets: batch.packets[message]!,
    bytes: batch.bytes[message]!,
    segmentSize: batch.segmentSize(message),
    errno: batch.errno[message]!,
  })
}
