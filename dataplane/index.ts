// The public surface of the dataplane: all that the control plane may see of it. Loading it loads no native library.
export { DROP_REASON_NAMES, DROP_REASONS, type DropReason } from './drop-reason.ts'
export { OVERHEAD_BYTES, WIDE_OVERHEAD_BYTES } from './encap/overhead.ts'
export { MESSAGE_SIZES } from './engine/counters.ts'
export { OFFENDERS_KEPT, type Offender } from './engine/offenders.ts'
export { mergeTraffic, type PeerTraffic, sumTraffic } from './engine/peer-activity.ts'
export type { EngineSettings, SourceCheckMode } from './engine/settings.ts'
export { formatEntry } from './forwarding/forwarding-table.ts'
export type { ForwardingEntry, RemoteVtep, UnderlayAddress } from './forwarding/remote-vtep.ts'
export * as errno from './io/errno.ts'
export { type Feature, type FeatureName, lost, unwanted, works } from './io/feature.ts'
export { isKernelAtLeast } from './io/kernel-release.ts'
export { type Direction, STEPS, type Step, type StepKind } from './step.ts'
export { formatAddress, formatIpv4, formatIpv6, formatMac, parseIpv4, parseIpv6, parseMac } from './wire/address.ts'
export type { FieldNote } from './wire/field.ts'
export { LEAST_MTU_BYTES as LEAST_IPV4_MTU_BYTES } from './wire/ipv4.ts'
export { LEAST_MTU_BYTES as LEAST_IPV6_MTU_BYTES } from './wire/ipv6.ts'
export { describeLayers, hexDump, type Layer } from './wire/layers.ts'
export * from './wire/prefix.ts'
export { gsoTypeName } from './wire/virtio-net.ts'
export {
  chooseUnderlayFeatures,
  closeDescriptor,
  type DatagramSender,
  keepOverlayDevice,
  type OpenTun,
  type OpenUdpSocket,
  type OuterDf,
  openDatagramSender,
  openOverlayDevice,
  openSendingSockets,
  openUnderlayPaths,
  openUnderlaySockets,
  type PathFds,
  rawDriverFailure,
  readDeviceMtu,
  receiveDatagramsOneByOne,
  type TunFailure,
  type UdpGsoMode,
} from './worker/descriptors.ts'
export type { RawPorts, RecordedStep, WorkerDriver, WorkerReport } from './worker/messages.ts'
export { monotonicClock } from './worker/monotonic-clock.ts'
export { NAP_MS } from './worker/nap-watch.ts'
export { WorkerGroup } from './worker/worker-group.ts'
