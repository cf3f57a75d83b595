// tshark as an oracle: frames in, the fields that it dissects out. Checksums are verified, fragments left as they are,
// and UDP port 8472 is VXLAN to it only because we say so.
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { temporaryDirectory } from './temporary-directory.ts'

const LINKTYPE_ETHERNET = 1
const SNAP_LENGTH = 262_144

/** A capture file (pcap, the old format) of Ethernet frames, one a second from the epoch on. */
function pcapOf(frames: readonly Uint8Array[]): Uint8Array {
  const header = Buffer.alloc(24)
  header.writeUInt32LE(0xa1b2c3d4, 0)
  header.writeUInt16LE(2, 4)
  header.writeUInt16LE(4, 6)
  header.writeUInt32LE(SNAP_LENGTH, 16)
  header.writeUInt32LE(LINKTYPE_ETHERNET, 20)
  const records = frames.flatMap((frame, seconds) => {
    const record = Buffer.alloc(16)
    record.writeUInt32LE(seconds, 0)
    record.writeUInt32LE(frame.length, 8)
    record.writeUInt32LE(frame.length, 12)
    return [record, frame]
  })
  return Buffer.concat([header, ...records])
}

let answer: { readonly reason: string | undefined } | undefined

/** `undefined` when tshark can run here, else why not. Asked once. */
export function whyNoTshark(): string | undefined {
  if (answer === undefined) {
    const { status, error } = spawnSync('tshark', ['--version'])
    const failure = `tshark does not run here (${error?.message ?? `exit ${status}`}): apt-get install tshark`
    answer = { reason: status === 0 ? undefined : failure }
  }
  return answer.reason
}

const SETTINGS = ['ip.check_checksum', 'udp.check_checksum', 'tcp.check_checksum'].flatMap((name) => [
  '-o',
  `${name}:TRUE`,
])

/** Fragments are left as they are. */
const WHOLE = ['ip.defragment:FALSE', 'ipv6.defragment:FALSE'].flatMap((setting) => ['-o', setting])

/**
 * For every frame, the values of every field as tshark prints them: outermost first, empty when the frame has none.
 * Call inside a test.
 * @throws Error when tshark refuses the capture or a field name.
 */
export function dissect(frames: readonly Uint8Array[], fields: readonly string[]): Map<string, string[]>[] {
  const output = ['-T', 'fields', '-E', 'separator=;', '-E', 'aggregator=,', '-E', 'occurrence=a']
  const wanted = fields.flatMap((field) => ['-e', field])
  // A file: tshark refuses the sockets that Node gives a child as its standard input.
  const file = join(temporaryDirectory(), 'frames.pcap')
  writeFileSync(file, pcapOf(frames))
  const run = spawnSync(
    'tshark',
    ['-n', '-r', file, '-d', 'udp.port==8472,vxlan', ...SETTINGS, ...WHOLE, ...output, ...wanted],
    { encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 },
  )
  if (run.status !== 0) throw new Error(`tshark: ${run.stderr}`)
  const lines = run.stdout.split('\n').slice(0, frames.length)
  return lines.map((line) => {
    const columns = line.split(';')
    return new Map(
      fields.map((field, index) => [field, (columns[index] ?? '').split(',').filter((text) => text !== '')]),
    )
  })
}
