// A router in the underlay of a lab: hosts reach each other by way of the switch's namespace, which passes packets on with
// an MTU of its own, and says so in ICMP unless it is told not to.
import { run } from '../../src/host/command.ts'
import { loadRuleset, replaceTable } from '../../src/host/nft.ts'
import type { Lab } from '../../src/lab/lab.ts'
import { ip } from './own-namespace.ts'

const ROUTER = '192.168.56.254'

export class LabRouter {
  readonly #namespace: string

  private constructor(namespace: string) {
    this.#namespace = namespace
  }

  /** Puts the router between all hosts. */
  static async between(lab: Lab): Promise<LabRouter> {
    const namespace = lab.namespace('switch')
    ip('-n', namespace, 'address', 'add', `${ROUTER}/24`, 'dev', 'switch')
    const settings = ['ip_forward=1', 'conf.all.send_redirects=0', 'conf.switch.send_redirects=0']
    await run(['sysctl', '-qw', ...settings.map((setting) => `net.ipv4.${setting}`)], { namespace })
    for (const { name, underlayAddress: own } of lab.hosts) {
      const others = lab.hosts.map(({ underlayAddress }) => underlayAddress).filter((address) => address !== own)
      for (const address of others) ip('-n', lab.namespace(name), 'route', 'add', address, 'via', ROUTER)
    }
    return new LabRouter(namespace)
  }

  /** Packets larger than so many bytes are cut, or refused with ICMP when they have DF. */
  passes(mtuBytes: number): void {
    ip('-n', this.#namespace, 'link', 'set', 'switch', 'mtu', String(mtuBytes))
  }

  /** Packets that it has cut so far. */
  async cut(): Promise<number> {
    const counters = await run(['nstat', '-asz', 'IpFragOKs'], { namespace: this.#namespace })
    return Number(/^IpFragOKs\s+(\d+)/m.exec(counters)?.[1])
  }

  /** Says nothing by ICMP any more. */
  async fallSilent(): Promise<void> {
    const rules = ['chain silence {', 'type filter hook output priority 0;', 'ip protocol icmp drop', '}'].join('\n')
    await this.#load(rules)
  }

  async speak(): Promise<void> {
    await this.#load('')
  }

  #load(chains: string): Promise<void> {
    return loadRuleset(replaceTable('ip', 'silence', chains), { namespace: this.#namespace })
  }
}
