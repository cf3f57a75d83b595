// Builds a planned lab, from bare namespaces to ready daemons and pods. Whoever calls it removes everything if it
// fails.

import { readFileSync } from 'node:fs'
import { formatPrefix, parseIpv6Prefix, parsePrefix } from '../../dataplane/index.ts'
import { readSubnetFile } from '../config/subnet-file.ts'
import { counted } from '../counted.ts'
import { FlanneletteError } from '../errors.ts'
import { startDaemon, suggestSubnet, waitReady } from './daemon-process.ts'
import { hostFiles, type LabHost, type LabState, writeLabState } from './lab-state.ts'
import { createNamespaces } from './namespaces.ts'
import { type LabPlan, podAddress } from './plan.ts'
import { buildPodNetwork } from './pod-network.ts'
import { buildUnderlay } from './underlay.ts'

/** One line of progress for people. */
export type Progress = (line: string) => void

export interface UpContext {
  readonly progress?: Progress
  /** Stops the start; what was built is removed again. */
  readonly signal?: AbortSignal
  /** The calling process takes the lab down itself; if it dies before, the next lab of that name clears it away. */
  readonly owned?: boolean
}

/**
 * Returns the state of the finished lab, which is on disk as well. @throws FlanneletteError `host-command`, `lab-state`
 */
export async function buildLab(plan: LabPlan, initial: LabState, context: UpContext): Promise<LabState> {
  const progress = context.progress ?? (() => {})
  const { options } = initial
  progress(
    `${counted(plan.hosts.length, 'host')} and ${counted(plan.pods.length, 'pod')}: namespaces and underlay (${options.underlay})`,
  )
  await createNamespaces(plan)
  await buildUnderlay(plan, options.underlay)
  context.signal?.throwIfAborted()
  progress('starting the daemons')
  const started = plan.hosts.map((host): LabHost => {
    suggestSubnet(plan, host)
    return { ...host, subnet: '', ipv6Subnet: null, mtuBytes: 0, daemon: startDaemon(options, host) }
  })
  // On disk before anything can go wrong, so that whoever cleans up knows the processes.
  writeLabState({ ...initial, hosts: started })
  const hosts = await Promise.all(started.map((host) => awaitHost(plan, host, context.signal)))
  progress('connecting the pods')
  const pods = await Promise.all(hosts.map((host) => connectPods(plan, host)))
  context.signal?.throwIfAborted()
  const state: LabState = { ...initial, phase: 'up', hosts, pods: pods.flat() }
  writeLabState(state)
  return state
}

async function awaitHost(plan: LabPlan, host: LabHost, signal?: AbortSignal): Promise<LabHost> {
  if (host.daemon === null) return host
  await waitReady(plan.name, host.name, host.daemon, plan.hosts.length - 1, signal)
  const { subnetFile } = hostFiles(plan.name, host.name)
  const { subnet = null, ipv6Subnet = null } = readSubnetFile(subnetFile) ?? {}
  const mtuBytes = Number(/^FLANNEL_MTU=(\d+)$/m.exec(readFileSync(subnetFile, 'utf8'))?.[1])
  const leading = subnet ?? ipv6Subnet
  if (leading === null || !(mtuBytes > 0)) {
    throw new FlanneletteError('lab-state', `the daemon of ${host.name} wrote no usable ${subnetFile}`)
  }
  return {
    ...host,
    subnet: formatPrefix(leading),
    ipv6Subnet: ipv6Subnet === null ? null : formatPrefix(ipv6Subnet),
    mtuBytes,
  }
}

async function connectPods(plan: LabPlan, host: LabHost) {
  const subnet = parsePrefix(host.subnet)
  const pods = plan.pods.filter((pod) => pod.host === host.name)
  const ipv6Subnet = host.ipv6Subnet === null ? null : parseIpv6Prefix(host.ipv6Subnet)
  const leading = subnet ?? ipv6Subnet
  if (leading === null) throw new FlanneletteError('lab-state', `${host.name} has no subnet`)
  await buildPodNetwork({ hostNamespace: host.namespace, subnet, ipv6Subnet, mtuBytes: host.mtuBytes, pods })
  return pods.map((pod) => ({
    ...pod,
    address: podAddress(leading, pod.number),
    ipv6Address: ipv6Subnet === null ? null : podAddress(ipv6Subnet, pod.number),
  }))
}
