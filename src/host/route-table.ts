// The kernel's routes as peers' routes need them, behind a small interface: the real table through iproute2, another one
// in tests.
import { formatPrefix, type Prefix } from '../../dataplane/index.ts'
import type { CommandOptions } from './command.ts'
import { attempt } from './command.ts'
import { type BatchFailure, batchEach, ipFamilies, type RouteInfo, showJson } from './ip.ts'

export interface RouteTable {
  /** Routes of the main table into these networks. @throws FlanneletteError `host-command` */
  read(networks: readonly Prefix[]): Promise<readonly RouteInfo[]>
  /** Runs every command of `ip`, whatever becomes of the others. @throws FlanneletteError `host-command` */
  apply(commands: readonly string[]): Promise<readonly BatchFailure[]>
  /**
   * By which route this kernel sends to each of the addresses; those without any are left out.
   * @throws FlanneletteError `host-command`
   */
  waysTo(addresses: readonly string[]): Promise<ReadonlyMap<string, RouteInfo>>
}

export function routeTable(where: Pick<CommandOptions, 'namespace'> = {}): RouteTable {
  const families = ipFamilies()
  return {
    read: async (networks) => {
      const readable = networks.map(formatPrefix).filter((text) => families.includes(familyOf(text)))
      const lists = readable.map((text) => {
        // Of a host that knows the routes of half the world only these are read.
        return showJson<RouteInfo>('ip', [familyOf(text), 'route', 'show', 'root', text], where)
      })
      return (await Promise.all(lists)).flat()
    },
    apply: (commands) => batchEach('ip', commands, where),
    waysTo: async (addresses) => {
      const unique = [...new Set(addresses)]
      if (unique.length === 0) return new Map()
      const inside = where.namespace === undefined ? [] : ['-n', where.namespace]
      const input = `${unique.map((address) => `route get ${address}`).join('\n')}\n`
      // Those without a route fail, and the others are answered all the same.
      const { stdout } = await attempt(['ip', ...inside, '-json', '-force', '-batch', '-'], { input })
      return parseWays(stdout)
    },
  }
}

/** One JSON list a line, each answer named by the address that was asked for. */
export function parseWays(text: string): ReadonlyMap<string, RouteInfo> {
  const ways = new Map<string, RouteInfo>()
  for (const line of text.split('\n')) {
    if (!line.startsWith('[')) continue
    for (const route of JSON.parse(line) as RouteInfo[]) ways.set(route.dst, route)
  }
  return ways
}

function familyOf(text: string): '-4' | '-6' {
  return text.includes(':') ? '-6' : '-4'
}
