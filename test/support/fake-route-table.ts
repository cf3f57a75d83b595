// A route table in memory that does with commands what the kernel does with them: refuses a gateway that is no neighbour
// and a route that is there already, replaces what has the same metric, deletes what matches.
import { formatPrefix, type Prefix } from '../../dataplane/index.ts'
import type { BatchFailure, RouteInfo } from '../../src/host/ip.ts'
import type { RouteTable } from '../../src/host/route-table.ts'

export class FakeRouteTable implements RouteTable {
  routes: RouteInfo[] = []
  /** Every command that was run. */
  readonly commands: string[] = []
  /** Addresses that are reached by a gateway, by nothing (`null`), or by another device. All others are neighbours. */
  readonly ways = new Map<string, Partial<RouteInfo> | null>()
  /** When set, nothing can be looked at. */
  broken = false
  /** When set, no command is obeyed. */
  frozen = false
  /** How often somebody has looked. */
  looks = 0

  async read(networks: readonly Prefix[]): Promise<readonly RouteInfo[]> {
    this.looks += 1
    if (this.broken) throw new Error('no more memory')
    if (networks.length === 0) throw new Error(`no networks: ${networks.map(formatPrefix)}`)
    return [...this.routes]
  }

  async apply(commands: readonly string[]): Promise<readonly BatchFailure[]> {
    this.commands.push(...commands)
    return commands.flatMap((command, index) => {
      const message = this.#run(command)
      return message === null ? [] : [{ index, message }]
    })
  }

  async waysTo(addresses: readonly string[]): Promise<ReadonlyMap<string, RouteInfo>> {
    if (this.broken) throw new Error('no more memory')
    const found = addresses.flatMap((dst): [string, RouteInfo][] => {
      const way = this.ways.get(dst)
      return way === null ? [] : [[dst, { dev: 'eth0', ...way, dst }]]
    })
    return new Map(found)
  }

  /** As `ip route` shows them. */
  get lines(): string[] {
    return this.routes.map(({ dst, gateway, dev, protocol, metric }) => {
      const words = [dst, gateway && `via ${gateway}`, dev && `dev ${dev}`, `proto ${protocol}`]
      return [...words, metric && `metric ${metric}`].filter(Boolean).join(' ')
    })
  }

  take(): string[] {
    return this.commands.splice(0)
  }

  #run(command: string): string | null {
    if (this.frozen) return 'Operation not permitted'
    const [, verb, dst = '', ...rest] = command.split(' ')
    const words = new Map(
      rest.flatMap((word, index) => (index % 2 === 0 ? [[word, rest[index + 1] ?? ''] as const] : [])),
    )
    const route = routeOf(dst, words)
    const same = (one: RouteInfo) => one.dst === dst && (one.metric ?? 0) === (route.metric ?? 0)
    if (verb === 'delete') {
      const index = this.routes.findIndex((one) => one.dst === dst && matches(one, words))
      if (index < 0) return 'No such process'
      this.routes.splice(index, 1)
      return null
    }
    const way = this.ways.get(route.gateway ?? '')
    if (way === null || way?.gateway !== undefined) return 'Nexthop has invalid gateway.'
    if (verb === 'add' && this.routes.some(same)) return 'File exists'
    const index = this.routes.findIndex(same)
    if (index < 0) this.routes.push(route)
    else this.routes[index] = route
    return null
  }
}

function routeOf(dst: string, words: ReadonlyMap<string, string>): RouteInfo {
  const usual = dst.includes(':') ? 1024 : 0
  const metric = Number(words.get('metric') ?? usual)
  const [gateway, dev, protocol] = ['via', 'dev', 'proto'].map((word) => words.get(word))
  return {
    dst,
    ...(gateway === undefined ? {} : { gateway }),
    ...(dev === undefined ? {} : { dev }),
    ...(protocol === undefined ? {} : { protocol }),
    ...(metric === 0 ? {} : { metric }),
  }
}

function matches(route: RouteInfo, words: ReadonlyMap<string, string>): boolean {
  const has: Readonly<Record<string, string | undefined>> = {
    ...{ via: route.gateway, dev: route.dev, proto: route.protocol },
    metric: String(route.metric ?? 0),
  }
  return [...words].every(([word, value]) => has[word] === value)
}
