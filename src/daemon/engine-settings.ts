// What the engine of the userspace dataplane is told of its node: from the node's addresses, the flags and what the kernel
// grants.
import type { EngineSettings, Feature, FeatureName } from '../../dataplane/index.ts'
import type { RunOptions } from '../config/options.ts'
import type { LocalVtep } from '../host/dataplane.ts'

/** `features`: as they were granted; what the device does not take is not joined. */
export function engineSettings(
  local: LocalVtep,
  { sourceCheck, sourceAllow }: Pick<RunOptions, 'sourceCheck' | 'sourceAllow'>,
  features: readonly Feature[],
): EngineSettings {
  const joins = (name: FeatureName) => features.some((feature) => feature.name === name && feature.on)
  return {
    overlayAddress: local.subnet?.address ?? null,
    overlayIpv6: local.ipv6Subnet?.address ?? null,
    subnet: local.subnet,
    ipv6Subnet: local.ipv6Subnet,
    countsHop: local.encapsulation === 'udp',
    mtuBytes: local.mtuBytes,
    sourceCheck,
    sourceAllow,
    mergeTcp: joins('tun-gso-tcp4'),
    mergeUdp: joins('tun-gso-udp'),
  }
}
