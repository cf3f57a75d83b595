// The ports that this host gives to those who do not ask for a certain one: net.ipv4.ip_local_port_range
// (ip-sysctl.rst).
import { readFileSync } from 'node:fs'

/** What kernels have by default. */
const USUAL = { firstPort: 32768, ports: 60999 - 32768 + 1 }

/** As the namespace of this thread has it. */
export function localPortRange(): { readonly firstPort: number; readonly ports: number } {
  return parsePortRange(readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'latin1'))
}

/** First and last port, as the kernel prints them; what makes no sense gives the usual range. */
export function parsePortRange(text: string): { readonly firstPort: number; readonly ports: number } {
  const [first = 0, last = 0] = text.trim().split(/\s+/).map(Number)
  return first >= 1 && last >= first && last <= 65535 ? { firstPort: first, ports: last - first + 1 } : USUAL
}
