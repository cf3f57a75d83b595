// host3 of a lab, as a peer that changes: its daemon is dead, its kernel's VTEP goes on, and the test plays the rest,
// both the VTEP's changes and the leases that tell others of them. All that changes is of one family: its half of the
// lease, its address and its device.
import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import type { Lab } from '../../src/lab/lab.ts'
import { labFiles } from '../../src/lab/lab-state.ts'
import type { EventGround } from './event-ground.ts'
import { ip } from './own-namespace.ts'

const HOST = 'host3'

export class ChangingPeer {
  readonly #lab: Lab
  readonly #ground: EventGround
  /** The lease as its daemon wrote it. */
  readonly #written: Readonly<Record<string, unknown>>
  /** `10.244.3.0-24`, or both halves. */
  #key: string
  /** `10.244.3.0/24` */
  subnet: string
  mac: string
  publicIp: string
  present = true

  constructor(lab: Lab, ground: EventGround) {
    const { lease, node } = lab.host(HOST).status ?? {}
    this.#lab = lab
    this.#ground = ground
    const found =
      ground.family === '-4'
        ? [lease?.subnet, lease?.vtepMac, lease?.publicIp]
        : [lease?.ipv6Subnet, node?.ipv6Device?.mac, lease?.publicIpv6]
    const [subnet, mac, publicIp] = found
    if (subnet == null || mac == null || publicIp == null) throw new Error(`${HOST} has no lease`)
    this.subnet = subnet
    this.mac = mac
    this.publicIp = publicIp
    const own = inKey(subnet)
    this.#key = readdirSync(this.#directory).find((name) => name.split('&').includes(own)) ?? own
    this.#written = JSON.parse(readFileSync(this.#file, 'utf8').split('\n')[0]!)
  }

  /** Its overlay address, which is the gateway of its subnet. */
  get overlayAddress(): string {
    return this.subnet.split('/')[0]!
  }

  /** With a device's MAC the kernel forgets all neighbours. */
  takeMac(mac: string): void {
    const { family, device } = this.#ground
    const neighbors = this.#ip(family, 'neigh', 'show', 'dev', device, 'nud', 'permanent')
    this.#ip('link', 'set', device, 'address', mac)
    for (const [, address, lladdr] of neighbors.matchAll(/^(\S+) lladdr (\S+)/gm)) {
      this.#ip('neigh', 'add', address!, 'lladdr', lladdr!, 'dev', device, 'nud', 'permanent')
    }
    this.mac = mac
    this.#publish()
  }

  /**
   * Another address of the underlay's network. The old one goes after the device has left it: only then the VTEP of
   * each CPU forgets by which source it has sent.
   */
  takeAddress(publicIp: string): void {
    const { device, linkLength } = this.#ground
    this.#ip('link', 'set', device, 'type', 'vxlan', 'id', '1', 'local', publicIp)
    this.#ip('address', 'delete', `${this.publicIp}/${linkLength}`, 'dev', 'eth0')
    this.#addAddress(`${publicIp}/${linkLength}`, 'eth0')
    this.publicIp = publicIp
    this.#publish()
  }

  /** Another one of the pod network. */
  takeSubnet(subnet: string): void {
    const { device, hostLength } = this.#ground
    this.leave()
    this.#key = this.#key.replace(inKey(this.subnet), inKey(subnet))
    this.subnet = subnet
    this.#addAddress(`${this.overlayAddress}/${hostLength}`, device)
    this.comeBack()
  }

  leave(): void {
    rmSync(this.#file)
    this.present = false
  }

  comeBack(): void {
    this.present = true
    this.#publish()
  }

  get #directory(): string {
    return `${labFiles(this.#lab.name).store}/subnets`
  }

  get #file(): string {
    return `${this.#directory}/${this.#key}`
  }

  /** Whole at once, as every writer of the store does it; a name with a dot in front is no key. */
  #publish(): void {
    const data = { VNI: 1, VtepMAC: this.mac }
    const half =
      this.#ground.family === '-4'
        ? { PublicIP: this.publicIp, BackendData: data }
        : { PublicIPv6: this.publicIp, BackendV6Data: data }
    const draft = `${this.#directory}/.draft`
    writeFileSync(draft, `${JSON.stringify({ ...this.#written, ...half })}\n`)
    renameSync(draft, this.#file)
  }

  #addAddress(address: string, device: string): void {
    this.#ip('address', 'add', address, 'dev', device, ...(address.includes(':') ? ['nodad'] : []))
  }

  #ip(...words: string[]): string {
    return ip('-n', this.#lab.namespace(HOST), ...words)
  }
}

/** As keys of the store have it. */
function inKey(subnet: string): string {
  return subnet.replace('/', '-')
}
