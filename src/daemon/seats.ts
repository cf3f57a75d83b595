// The daemons of one host, side by side. Each one takes a seat in its network namespace: the smallest number that is free,
// held by a lock for as long as the process lives, with a note of what it uses. From the number follow the names of its
// firewall chains; from the notes everybody knows which devices, networks and files are whose, so that nobody takes
// another's away, and two that would share what cannot be shared are told so at their start.
import { readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import {
  formatAddress,
  formatPrefix,
  overlaps,
  type Prefix,
  parseIpv6Prefix,
  parsePrefix,
} from '../../dataplane/index.ts'
import { FlanneletteError } from '../errors.ts'
import type { VtepOutline } from '../host/dataplane.ts'
import type { InUse } from '../host/left-behind.ts'
import { hasEnded } from '../host/network-namespace.ts'
import type { Log } from '../log.ts'
import { makeDirectory } from '../make-directory.ts'
import { holdFileLock } from '../store/file-lock.ts'
import { namesIn } from './running-daemons.ts'

export const SEAT_DIRECTORY = '/run/flannelette/seats'

/** More daemons than anybody runs on a host. */
const MOST_SEATS = 32
/** Taking a seat takes milliseconds. */
const PATIENCE_MS = 2000
/** Who only looks whether somebody sits there holds the lock for a moment. */
const GLANCE_MS = 20
/** Network namespace and number. */
const SEAT = /^(\d+)-(\d+)$/
/** Held by whoever takes a seat or looks for a neighbour in his way. */
export const SEAT_LOCK = 'lock'

/** Files and directories of a daemon that no other may have. */
export interface SeatFiles {
  readonly stateDirectory: string
  readonly subnetFile: string
  /** `null` for none. */
  readonly dockerOptsFile: string | null
  /** `null`: in the state directory. */
  readonly apiSocket: string | null
}

/** What a daemon uses of its host's network. */
export interface SeatPlace {
  readonly devices: readonly string[]
  /** `10.244.0.0/16` */
  readonly networks: readonly string[]
  /** `null` without a tunnel. Several devices of the kernel may share a port. */
  readonly tunnel: {
    readonly dataplane: string
    readonly addresses: readonly string[]
    readonly port: number
  } | null
}

export interface Neighbour extends SeatFiles {
  readonly number: number
  readonly pid: number
  /** `null` until its network config is known. */
  readonly place: SeatPlace | null
}

type Note = Omit<Neighbour, 'number'>

/** What a node uses, as far as it is known before its lease. */
export function seatPlaceOf(outline: VtepOutline, dataplane: string): SeatPlace {
  const { deviceName, ipv6Device, network, ipv6Network, underlayAddress, port } = outline
  const addresses = [underlayAddress, ...(ipv6Device === undefined ? [] : [ipv6Device.underlayAddress])]
  return {
    devices: [deviceName, ...(ipv6Device === undefined ? [] : [ipv6Device.deviceName])].filter((name) => name !== ''),
    networks: [network, ipv6Network].flatMap((prefix) => (prefix === null ? [] : [formatPrefix(prefix)])),
    tunnel: port === 0 ? null : { dataplane, addresses: addresses.map(formatAddress), port },
  }
}

export class Seat {
  readonly #files: SeatFiles
  readonly #log: Log
  readonly #directory: string
  #number = 1
  #release: (() => void) | null = null

  constructor(
    files: Partial<SeatFiles> & Pick<SeatFiles, 'stateDirectory' | 'subnetFile'>,
    log: Log,
    directory = SEAT_DIRECTORY,
  ) {
    const { stateDirectory, subnetFile, dockerOptsFile = null, apiSocket = null } = files
    const absolute = (path: string | null) => (path === null ? null : resolve(path))
    this.#files = {
      stateDirectory: resolve(stateDirectory),
      subnetFile: resolve(subnetFile),
      dockerOptsFile: absolute(dockerOptsFile),
      apiSocket: absolute(apiSocket),
    }
    this.#log = log
    this.#directory = directory
  }

  /** 1 for the only daemon of a host. */
  get number(): number {
    return this.#number
  }

  /**
   * Takes a seat until the process ends. Where the directory cannot be written, says so and goes on as if alone.
   * @throws FlanneletteError `device-busy` when another daemon has one of the files
   */
  async take(): Promise<void> {
    await this.#guarded(async () => {
      makeDirectory(this.#directory)
      const others = await readSeats(this.#directory, true)
      for (const other of others) refuseSharedFile(this.#files, other)
      const taken = new Set(others.map(({ number }) => number))
      for (let number = 1; number <= MOST_SEATS && this.#release === null; number++) {
        if (taken.has(number)) continue
        this.#release = await holdFileLock(this.#path(number), GLANCE_MS)
        if (this.#release !== null) this.#number = number
      }
      if (this.#release === null) throw new Error(`all ${MOST_SEATS} seats are taken`)
      this.#write(null)
    })
    if (this.#number > 1) {
      this.#log.info(
        'daemon-beside',
        `${this.#number - 1} or more daemons run on this host: this one has seat ${this.#number}`,
      )
    }
  }

  /**
   * Says what this daemon uses of the host's network.
   * @throws FlanneletteError `device-busy`, `port-busy`, `network-overlap` when another one has some of it
   */
  async announce(place: SeatPlace): Promise<void> {
    if (this.#release === null) return
    await this.#guarded(async () => {
      for (const other of await this.neighbours()) refuseSharedPlace(place, other)
      this.#write(place)
    })
  }

  /** The other daemons of this network namespace. */
  async neighbours(): Promise<readonly Neighbour[]> {
    const all = await readSeats(this.#directory)
    return all.filter(({ number }) => this.#release === null || number !== this.#number)
  }

  /** Gives the seat up, for another process to take. */
  leave(): void {
    if (this.#release === null) return
    rmSync(this.#path(this.#number), { force: true }) // while nobody else can have it
    this.#release()
    this.#release = null
  }

  async #guarded(work: () => Promise<void>): Promise<void> {
    let reopen: (() => void) | null = null
    try {
      reopen = await closeSeats(this.#directory)
      await work()
    } catch (error) {
      if (error instanceof FlanneletteError) throw error
      const why = (error as Error).message
      this.#log.warn('seat-unguarded', `other daemons on this host would not be noticed: ${why}`)
    } finally {
      reopen?.()
    }
  }

  #write(place: SeatPlace | null): void {
    const note: Note = { pid: process.pid, ...this.#files, place }
    writeFileSync(this.#path(this.#number), `${JSON.stringify(note)}\n`)
  }

  #path(number: number): string {
    return `${this.#directory}/${ownNamespace()}-${number}`
  }
}

/**
 * From here on nobody takes a seat or says what he uses, until the returned function is called. `null` when somebody has
 * held the lock for longer than a daemon waits: he is not waited for. @throws Error of mkdir(2) or open(2)
 */
export async function closeSeats(directory: string): Promise<(() => void) | null> {
  makeDirectory(directory)
  return holdFileLock(`${directory}/${SEAT_LOCK}`, PATIENCE_MS)
}

/** Daemons that run in this network namespace, in the order of their seats. `sweep`: notes of dead ones go. */
export async function readSeats(directory = SEAT_DIRECTORY, sweep = false): Promise<readonly Neighbour[]> {
  const found: Neighbour[] = []
  for (const name of namesIn(directory)) {
    const [, namespace, number] = SEAT.exec(name) ?? []
    if (number === undefined || (!sweep && namespace !== ownNamespace())) continue
    const path = `${directory}/${name}`
    const release = await holdFileLock(path, sweep ? GLANCE_MS : 0).catch(() => null)
    if (release !== null) {
      if (sweep) rmSync(path, { force: true })
      release()
    } else if (namespace === ownNamespace()) {
      const note = noteIn(path)
      if (note !== null && !hasEnded(note.pid)) found.push({ ...note, number: Number(number) })
    }
  }
  return found.sort((a, b) => a.number - b.number)
}

/** Notes of daemons that are gone, in whatever network namespace; with the lock for all of them where nobody sits here. */
export async function abandonedSeats(directory = SEAT_DIRECTORY): Promise<readonly string[]> {
  const found: string[] = []
  const names = namesIn(directory)
  for (const name of names) {
    const path = `${directory}/${name}`
    const release = SEAT.test(name) ? await holdFileLock(path, 0).catch(() => null) : null
    if (release === null) continue
    release()
    found.push(path)
  }
  const lock = `${directory}/${SEAT_LOCK}`
  return names.includes(SEAT_LOCK) && found.length === names.length - 1 ? [...found, lock] : found
}

/** What is not ours to touch. `null` when a daemon has not said yet what it uses. */
export function inUseBy(neighbours: readonly Neighbour[]): InUse | null {
  const places = neighbours.flatMap(({ place }) => (place === null ? [] : [place]))
  if (places.length < neighbours.length) return null
  return {
    seats: new Set(neighbours.map(({ number }) => number)),
    devices: new Set(places.flatMap(({ devices }) => devices)),
    networks: places.flatMap(({ networks }) => networks.flatMap((text) => prefixOf(text) ?? [])),
  }
}

function prefixOf(text: string): Prefix | null {
  return parsePrefix(text) ?? parseIpv6Prefix(text)
}

function refuseSharedFile(files: SeatFiles, other: Neighbour): void {
  const shared = (name: 'subnetFile' | 'dockerOptsFile' | 'apiSocket', flag: string) => {
    if (files[name] === null || files[name] !== other[name]) return
    throw busy('device-busy', `${files[name]} is written by`, other, `give each daemon its own with ${flag}`)
  }
  shared('subnetFile', '--subnet-file')
  shared('dockerOptsFile', '--docker-opts-file')
  shared('apiSocket', '--api-socket')
}

function refuseSharedPlace({ devices, networks, tunnel }: SeatPlace, other: Neighbour): void {
  const { place } = other
  if (place === null) return
  const device = devices.find((name) => place.devices.includes(name))
  if (device !== undefined) {
    throw busy('device-busy', `${device} is the device of`, other, 'give each network a Backend.VNI of its own')
  }
  const shared = sharedAddress(tunnel, place.tunnel)
  if (shared !== null) {
    const what = `UDP ${shared} is the port of`
    throw busy('port-busy', what, other, 'give each network a Backend.Port of its own')
  }
  for (const text of networks) {
    const network = prefixOf(text)
    const hit = place.networks.map(prefixOf).find((one) => one !== null && network !== null && overlaps(one, network))
    if (hit == null) continue
    const isSame = formatPrefix(hit) === text
    const what = `the pod network ${text} ${isSame ? 'is that of' : `overlaps ${formatPrefix(hit)} of`}`
    const remedy = isSame
      ? 'a host needs one daemon for a network: stop one of them'
      : 'give each network its own range'
    throw busy('network-overlap', what, other, remedy)
  }
}

/** Address and port of both; `null` for none, and for two devices of the kernel. */
function sharedAddress(one: SeatPlace['tunnel'], other: SeatPlace['tunnel']): string | null {
  if (one === null || other === null || one.port !== other.port) return null
  if (one.dataplane === 'kernel' && other.dataplane === 'kernel') return null
  const address = one.addresses.find((text) => other.addresses.includes(text))
  if (address === undefined) return null
  return address.includes(':') ? `[${address}]:${one.port}` : `${address}:${one.port}`
}

function busy(code: 'device-busy' | 'port-busy' | 'network-overlap', what: string, other: Neighbour, remedy: string) {
  const who = `another daemon of this host (pid ${other.pid}, --state-dir ${other.stateDirectory})`
  return new FlanneletteError(code, `${what} ${who}`, { remedy })
}

/** `null` while it is being written, or by somebody else. */
function noteIn(path: string): Note | null {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Note
  } catch {
    return null
  }
}

/** Number of this process's network namespace, namespaces(7). */
function ownNamespace(): string {
  return /\d+/.exec(readlinkSync('/proc/self/ns/net'))?.[0] ?? '0'
}
