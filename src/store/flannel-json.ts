// The form in which flannel writes leases: keys such as `10.5.52.0-24`, and values such as
// `{"PublicIP":"192.168.64.3","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"c6:…"}}`.
// The only file that knows these names.
import {
  formatIpv4,
  formatIpv6,
  formatMac,
  formatPrefix,
  type Ipv4Prefix,
  parseIpv4,
  parseIpv6Prefix,
  parseMac,
  prefixAround,
} from '../../dataplane/index.ts'
import { parseJson, toPlain } from '../config/json-document.ts'
import { JsonFields } from '../config/json-fields.ts'
import { resultPer } from '../last-result.ts'
import type { Halves, LeaseAttributes } from '../lease/lease.ts'

export type SubnetKey = Halves

/** What flannel writes for the IPv4 half where IPv4 is off: there is no key without one. */
const NO_IPV4: Ipv4Prefix = { address: 0, length: 0 }

/** The IPv4 half, by which every key begins. */
export function formatIpv4Half(subnet: Ipv4Prefix | null): string {
  const { address, length } = subnet ?? NO_IPV4
  return `${formatIpv4(address)}-${length}`
}

/** `10.12.13.0-24`, `10.12.13.0-24&fd00:12:13::-56` for dual stack, `0.0.0.0-0&fd00:12:13::-56` for IPv6 alone. */
export function formatSubnetKey(key: SubnetKey): string {
  const ipv4 = formatIpv4Half(key.subnet)
  return key.ipv6Subnet === null ? ipv4 : `${ipv4}&${key.ipv6Subnet.replace('/', '-')}`
}

// Not anchored at the start, as flannel's: whatever stands before the first octet is ignored. Digits are not begun in
// their midst, which would find nothing else: a key of a million digits is then read once, not a million times.
const KEY = /(?<!\d)(\d+\.\d+\.\d+\.\d+)-(\d+)(?:&([a-f0-9:]+)-(\d+))?$/

/** flannel reads the length of the IPv4 half as a 5-bit number and that of the IPv6 half as a 7-bit one. */
const MAX_LENGTH = 31
const MAX_IPV6_LENGTH = 127

/**
 * Reads a key by flannel's lenient pattern; host bits are cleared. `null` when either half is wrong, or nothing is left
 * of both.
 */
export function parseSubnetKey(text: string): SubnetKey | null {
  const [, ipv4, length, ipv6, ipv6Length] = KEY.exec(text) ?? []
  const address = parseIpv4(ipv4 ?? '')
  if (address === null || Number(length) > MAX_LENGTH) return null
  const subnet = Number(length) === 0 ? null : prefixAround(address, Number(length))
  if (ipv6 === undefined) return subnet === null ? null : { subnet, ipv6Subnet: null }
  const ipv6Subnet = parseIpv6Prefix(`${ipv6}/${Number(ipv6Length)}`)
  if (ipv6Subnet === null || ipv6Subnet.length > MAX_IPV6_LENGTH) return null
  return { subnet, ipv6Subnet: formatPrefix(ipv6Subnet) }
}

/** The value's text: compact, in flannel's field order, with the same fields left out. */
export function formatLeaseValue(attributes: LeaseAttributes): string {
  return JSON.stringify({
    PublicIP: formatIpv4(attributes.publicIp),
    PublicIPv6: attributes.publicIpv6,
    BackendType: attributes.backendType === '' ? undefined : attributes.backendType,
    BackendData: attributes.backendData,
    BackendV6Data: attributes.backendV6Data,
  })
}

/** Reads a value by Go's rules. @throws JsonProblem with the position of what is wrong */
export function parseLeaseValue(text: string): LeaseAttributes {
  const fields = new JsonFields(text, parseJson(text), 'a lease')
  const publicIp = fields.ipv4('PublicIP')
  const publicIpv6 = fields.ipv6('PublicIPv6')
  const backendData = fields.node('BackendData')
  const backendV6Data = fields.node('BackendV6Data')
  return {
    publicIp: publicIp ?? 0,
    publicIpv6: publicIpv6 === null ? null : formatIpv6(publicIpv6),
    backendType: fields.string('BackendType', ''),
    ...(backendData === undefined ? {} : { backendData: toPlain(backendData) }),
    ...(backendV6Data === undefined ? {} : { backendV6Data: toPlain(backendV6Data) }),
  }
}

/** Backend data of a vxlan lease; key order matters to other readers. */
export function vxlanData(vni: number, mac: number): unknown {
  return { VNI: vni, VtepMAC: formatMac(mac) }
}

/** The VTEP's MAC in a vxlan lease's backend data; `null` when there is none that could be sent to. */
export function vtepMacOf({ backendData }: LeaseAttributes): number | null {
  return macIn(backendData)
}

/** The MAC of the VTEP that takes a lease's IPv6 packets. */
export function vtepMacForIpv6({ backendV6Data }: LeaseAttributes): number | null {
  return macIn(backendV6Data)
}

/** By the data itself, which nobody changes: every snapshot asks for all of them again. */
const knownMac = resultPer(readMac)

function macIn(backendData: unknown): number | null {
  return typeof backendData !== 'object' || backendData === null ? null : knownMac(backendData)
}

function readMac(backendData: object): number | null {
  const text = Object.entries(backendData).findLast(([key]) => key.toLowerCase() === 'vtepmac')?.[1] as unknown
  const mac = typeof text === 'string' ? parseMac(text) : null
  return mac === null || mac === 0 || isGroupMac(mac) ? null : mac
}

/** Whether the first octet's lowest bit is set: a multicast or broadcast MAC, IEEE 802. */
function isGroupMac(mac: number): boolean {
  return Math.floor(mac / 2 ** 40) % 2 === 1
}
