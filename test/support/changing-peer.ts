// host3 of a lab, as a peer that changes: its daemon is dead, its kernel's VTEP goes on, and the test plays the rest,
// both the VTEP's changes and the leases that tell others of them.
import { renameSync, rmSync, writeFileSync } from 'node:fs'
import type { Lab } from '../../src/lab/lab.ts'
import { labFiles } from '../../src/lab/lab-state.ts'
import { ip } from './own-namespace.ts'

const HOST = 'host3'
const DEVICE = 'flannel.1'

export class ChangingPeer {
  readonly #lab: Lab
  /** `10.244.3.0/24` */
  subnet: string
  mac: string
  publicIp: string
  present = true

  constructor(lab: Lab) {
    const { lease } = lab.host(HOST).status ?? {}
    if (lease == null || lease.vtepMac === null) throw new Error(`${HOST} has no lease`)
    this.#lab = lab
    this.subnet = lease.subnet
    this.mac = lease.vtepMac
    this.publicIp = lease.publicIp
  }

  /** Its overlay address, which is the gateway of its subnet. */
  get overlayAddress(): string {
    return this.subnet.split('/')[0]!
  }

  /** With a device's MAC the kernel forgets all neighbours. */
  takeMac(mac: string): void {
    const neighbors = this.#ip('neigh', 'show', 'dev', DEVICE, 'nud', 'permanent')
    this.#ip('link', 'set', DEVICE, 'address', mac)
    for (const [, address, lladdr] of neighbors.matchAll(/^(\S+) lladdr (\S+)/gm)) {
      this.#ip('neigh', 'add', address!, 'lladdr', lladdr!, 'dev', DEVICE, 'nud', 'permanent')
    }
    this.mac = mac
    this.#publish()
  }

  /** Another address of the underlay's network. */
  takeAddress(publicIp: string): void {
    this.#ip('address', 'add', `${publicIp}/24`, 'dev', 'eth0')
    this.#ip('link', 'set', DEVICE, 'type', 'vxlan', 'id', '1', 'local', publicIp)
    this.publicIp = publicIp
    this.#publish()
  }

  /** Another /24 of the pod network. */
  takeSubnet(subnet: string): void {
    this.leave()
    this.subnet = subnet
    this.#ip('address', 'add', `${this.overlayAddress}/32`, 'dev', DEVICE)
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

  get #file(): string {
    return `${labFiles(this.#lab.name).store}/subnets/${this.subnet.replace('/', '-')}`
  }

  /** Whole at once, as every writer of the store does it; a name with a dot in front is no key. */
  #publish(): void {
    const data = { VNI: 1, VtepMAC: this.mac }
    const value = { PublicIP: this.publicIp, PublicIPv6: null, BackendType: 'vxlan', BackendData: data }
    const draft = this.#file.replace(/[^/]+$/, '.draft')
    writeFileSync(draft, `${JSON.stringify(value)}\n`)
    renameSync(draft, this.#file)
  }

  #ip(...words: string[]): string {
    return ip('-n', this.#lab.namespace(HOST), ...words)
  }
}
