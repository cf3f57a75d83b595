// subnet.env: byte for byte as flannel writes it, read back leniently, removed when stale.
import { execFileSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseIpv6Prefix, parsePrefix } from '../../../dataplane/wire/prefix.ts'
import {
  formatSubnetFile,
  type KnownSubnets,
  readSubnetFile,
  removeStaleSubnetFile,
  type SubnetFile,
  writeSubnetFile,
} from '../../../src/config/subnet-file.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

const NETWORK = parsePrefix('10.244.0.0/16')!
const SUBNET = parsePrefix('10.244.1.0/24')!
const FILE = { network: NETWORK, subnet: SUBNET, ipv6: null, mtuBytes: 1450, ipMasq: false }
const IPV6 = { network: parseIpv6Prefix('fd00:10:244::/48')!, subnet: parseIpv6Prefix('fd00:10:244:1::/64')! }
const KNOWN_IPV6 = { ipv6Network: IPV6.network, ipv6Subnet: IPV6.subnet }
const DUAL_TEXT = [
  'FLANNEL_NETWORK=10.244.0.0/16',
  'FLANNEL_SUBNET=10.244.1.1/24',
  'FLANNEL_IPV6_NETWORK=fd00:10:244::/48',
  'FLANNEL_IPV6_SUBNET=fd00:10:244:1::1/64',
  'FLANNEL_MTU=1450',
  'FLANNEL_IPMASQ=false',
  '',
].join('\n')
const TEXT = 'FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n'

function remembered(text: string) {
  const path = `${temporaryDirectory()}/subnet.env`
  writeFileSync(path, text)
  return readSubnetFile(path)
}

describe('writing', () => {
  test("gives flannel's bytes, in a directory that is made, readable by all whatever the umask", () => {
    const directory = `${temporaryDirectory()}/run/flannel`
    const before = process.umask(0o077)
    try {
      writeSubnetFile(`${directory}/subnet.env`, FILE)
    } finally {
      process.umask(before)
    }
    expect(readFileSync(`${directory}/subnet.env`, 'utf8')).toBe(TEXT)
    expect(statSync(`${directory}/subnet.env`).mode & 0o777).toBe(0o644)
    expect(readdirSync(directory)).toEqual(['subnet.env'])
  })

  test('keeps the mode that somebody gave the file', () => {
    const path = `${temporaryDirectory()}/subnet.env`
    writeSubnetFile(path, FILE)
    chmodSync(path, 0o640)
    writeSubnetFile(path, FILE)
    expect(statSync(path).mode & 0o777).toBe(0o640)
  })

  test('says whether the node masquerades', () => {
    const path = `${temporaryDirectory()}/subnet.env`
    writeSubnetFile(path, { ...FILE, ipMasq: true })
    expect(readFileSync(path, 'utf8')).toBe(TEXT.replace('=false', '=true'))
  })

  test('of a dual-stack node gives flannel’s bytes too', () => {
    const path = `${temporaryDirectory()}/subnet.env`
    writeSubnetFile(path, { ...FILE, ipv6: IPV6 })
    expect(readFileSync(path, 'utf8')).toBe(DUAL_TEXT)
  })

  test('of a node without IPv4 has the lines of IPv6 alone', () => {
    const path = `${temporaryDirectory()}/subnet.env`
    writeSubnetFile(path, { ...FILE, network: null, subnet: null, ipv6: IPV6 })
    expect(readFileSync(path, 'utf8')).toBe(DUAL_TEXT.replace(/^FLANNEL_(NETWORK|SUBNET)=.*\n/gm, ''))
  })

  test('replaces the file whole: a reader that has it open keeps the old one', () => {
    const path = `${temporaryDirectory()}/subnet.env`
    writeSubnetFile(path, FILE)
    const { ino } = statSync(path)
    writeSubnetFile(path, { ...FILE, mtuBytes: 1370 })
    expect(statSync(path).ino).not.toBe(ino)
    expect(readFileSync(path, 'utf8')).toBe(TEXT.replace('1450', '1370'))
  })

  test('that says the same already is left as it is: a full disk is no reason to end', () => {
    const path = `${temporaryDirectory()}/subnet.env`
    writeSubnetFile(path, FILE)
    const { ino } = statSync(path)
    writeSubnetFile(path, FILE)
    expect(statSync(path).ino).toBe(ino)
  })

  test('leaves nothing behind when the rename fails', () => {
    const directory = temporaryDirectory()
    mkdirSync(`${directory}/subnet.env/occupied`, { recursive: true })
    expect(() => writeSubnetFile(`${directory}/subnet.env`, FILE)).toThrow()
    expect(readdirSync(directory)).toEqual(['subnet.env'])
  })

  test('gives what sh can read', () => {
    const path = `${temporaryDirectory()}/subnet.env`
    writeSubnetFile(path, FILE)
    chmodSync(path, 0o644)
    const said = execFileSync('sh', [
      '-c',
      `. ${path}; echo $FLANNEL_NETWORK $FLANNEL_SUBNET $FLANNEL_MTU $FLANNEL_IPMASQ`,
    ])
    expect(said.toString()).toBe('10.244.0.0/16 10.244.1.1/24 1450 false\n')
  })
})

test('a place that cannot be written to is told with the flag that names another', () => {
  const directory = temporaryDirectory()
  expect(() => writeSubnetFile(directory, FILE)).toThrow(
    expect.objectContaining({ code: 'usage', remedy: 'choose another with --subnet-file' }),
  )
})

describe('reading back', () => {
  test('gives what was written, host bits cleared', () => {
    expect(remembered(TEXT)).toEqual({ network: NETWORK, subnet: SUBNET, ipv6Network: null, ipv6Subnet: null })
    expect(remembered(DUAL_TEXT)).toEqual({ network: NETWORK, subnet: SUBNET, ...KNOWN_IPV6 })
  })

  test.each([
    ['quotes', 'FLANNEL_SUBNET="10.5.72.1/24"'],
    ['single quotes', "FLANNEL_SUBNET='10.5.72.1/24'"],
    ['export', 'export FLANNEL_SUBNET=10.5.72.1/24'],
    ['comments', '# hello\nFLANNEL_SUBNET=10.5.72.1/24 # bridge'],
    ['variables', 'NET=10.5\nFLANNEL_SUBNET=$NET.72.1/24'],
    ['braced variables', `NET=10.5\nFLANNEL_SUBNET="\${NET}.72.1/24"`],
    ['blanks and carriage returns', '\r\n  FLANNEL_SUBNET = 10.5.72.1/24\r\n'],
    ['entries that are no prefixes', 'FLANNEL_SUBNET=not-a-cidr,10.5.72.1/24'],
  ])('understands %s', (_, text) => {
    expect(remembered(text)?.subnet).toEqual(parsePrefix('10.5.72.0/24'))
  })

  test.each([
    ['two subnets', 'FLANNEL_SUBNET=10.244.1.0/24,not-a-cidr,10.244.2.0/24'],
    ['only a bad entry', 'FLANNEL_SUBNET=not-a-cidr'],
    ['nothing', ''],
    ['noise', '\u0000\u0001 = = =\n==\nFLANNEL_SUBNET'],
  ])('%s remembers no subnet', (_, text) => {
    expect(remembered(text)).toEqual({ network: null, subnet: null, ipv6Network: null, ipv6Subnet: null })
  })

  test('any file of ours survives what people do to such files', () => {
    const line = (text: string) =>
      fc.constantFrom(
        text,
        `export ${text}`,
        text.replace('=', ' = '),
        text.replace(/=(.*)/, '="$1"'),
        text.replace(/=(.*)/, "='$1' # mine"),
        `# ${text}0\r\n${text}\r`,
        `${text},`,
        `V=${text.split('=')[1]}\n${text.split('=')[0]}=$V`,
      )
    const prefixes = fc.tuple(fc.nat(255), fc.nat(255), fc.integer({ min: 16, max: 30 }))
    const files = prefixes.chain(([a, b, length]) => {
      const network = parsePrefix(`10.${a}.0.0/16`)!
      const subnet = parsePrefix(`10.${a}.${b}.0/${length}`)!
      const lines = formatSubnetFile({ ...FILE, network, subnet, ipv6: IPV6 })
        .trimEnd()
        .split('\n')
      return fc.tuple(fc.constant({ network, subnet }), fc.tuple(...lines.map(line)))
    })
    fc.assert(
      fc.property(files, ([known, lines]) => {
        expect(remembered(lines.join('\n'))).toEqual({ ...known, ...KNOWN_IPV6 })
      }),
      { numRuns: 50 },
    )
  })

  test('a missing file is no memory', () => {
    expect(readSubnetFile(`${temporaryDirectory()}/subnet.env`)).toBeNull()
  })
})

describe('a file that is no longer true', () => {
  const other = parsePrefix('10.244.2.0/24')!
  test.each([
    ['another subnet', { network: NETWORK, subnet: other }, false],
    ['another network', { network: parsePrefix('10.0.0.0/8')!, subnet: SUBNET }, false],
    ['the same', { network: NETWORK, subnet: SUBNET }, true],
    ['a subnet that is not known yet', { network: NETWORK }, true],
    ['nothing known yet', {}, true],
  ])('compared with %s', (_, known, stays) => {
    const path = `${temporaryDirectory()}/subnet.env`
    writeSubnetFile(path, FILE)
    expect(removeStaleSubnetFile(path, known)).toBe(!stays)
    expect(existsSync(path)).toBe(stays)
  })

  test.each<[string, SubnetFile['ipv6'], KnownSubnets, boolean]>([
    ['the same IPv6 subnet', IPV6, KNOWN_IPV6, true],
    ['an IPv6 half that is not known yet', IPV6, {}, true],
    ['a node without IPv6', IPV6, { ipv6Network: null, ipv6Subnet: null }, false],
    ['a node that has IPv6 now', null, KNOWN_IPV6, false],
    ['another IPv6 subnet', IPV6, { ipv6Subnet: parseIpv6Prefix('fd00:10:244:2::/64') }, false],
    ['another IPv6 network', IPV6, { ipv6Network: parseIpv6Prefix('fd00:99::/48') }, false],
  ])('compared with %s', (_, ipv6, known, stays) => {
    const path = `${temporaryDirectory()}/subnet.env`
    writeSubnetFile(path, { ...FILE, ipv6 })
    expect(removeStaleSubnetFile(path, { network: NETWORK, subnet: SUBNET, ...known })).toBe(!stays)
  })

  test('a file that says nothing clear is removed', () => {
    const path = `${temporaryDirectory()}/subnet.env`
    writeFileSync(path, 'FLANNEL_SUBNET=?')
    expect(removeStaleSubnetFile(path, { network: NETWORK, subnet: SUBNET })).toBe(true)
  })
})
