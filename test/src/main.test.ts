// The command line: help, mistakes, exit codes. Every failure is one line.
import { describe, expect, test } from 'vitest'
import { runCommand } from '../../src/cli/run.ts'
import type { RunOptions } from '../../src/config/options.ts'
import { main, requireNode } from '../../src/main.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'

async function run(...argv: string[]) {
  const text = { out: '', err: '' }
  const code = await main(argv, {
    out: (written) => {
      text.out += written
    },
    err: (written) => {
      text.err += written
    },
  })
  return { code, ...text }
}

/** The options that a `run` command line leads to. */
async function optionsOf(...argv: string[]): Promise<{ options: RunOptions; code: number }> {
  let options: RunOptions | undefined
  let code = -1
  const command = runCommand(
    async (given) => {
      options = given
      return 7
    },
    (given) => {
      code = given
    },
  )
  await command.parseAsync(argv, { from: 'user' })
  return { options: options!, code }
}

test('the defaults of run are those of flannel where flannel has them', async () => {
  const { options, code } = await optionsOf('--store', 'file:/tmp/x')
  expect(code).toBe(7)
  expect(options).toEqual({
    store: 'file:/tmp/x',
    subnetFile: '/run/flannel/subnet.env',
    stateDirectory: '/var/lib/flannelette',
    renewMarginMinutes: 60,
    dataplane: 'userspace',
    driver: 'offload',
    udpGso: 'auto',
    tunOffload: true,
    sourceCheck: 'strict',
    udpChecksum: true,
    onExit: 'keep',
    logFormat: 'auto',
    verbose: false,
  })
})

test('every flag of run arrives', async () => {
  const { options } = await optionsOf(
    ...['--store=file:/s', '--iface=eth1', '--public-ip=192.0.2.1', '--subnet-file=/e', '--state-dir=/d'],
    ...['--subnet-lease-renew-margin=90', '--dataplane=kernel', '--source-check=off', '--udp-checksum=off'],
    ...['--driver=plain', '--udp-gso=on', '--tun-offload=off'],
    ...['--on-exit=remove', '--log-format=json', '-v'],
  )
  expect(options).toEqual({
    store: 'file:/s',
    iface: 'eth1',
    publicIp: 0xc0000201,
    subnetFile: '/e',
    stateDirectory: '/d',
    renewMarginMinutes: 90,
    dataplane: 'kernel',
    driver: 'plain',
    udpGso: 'on',
    tunOffload: false,
    sourceCheck: 'off',
    udpChecksum: false,
    onExit: 'remove',
    logFormat: 'json',
    verbose: true,
  })
})

describe('wrong usage is one line and exit code 2', () => {
  test.each([
    ['an unknown flag, with the nearest one', ['run', '--ifcae', 'eth0'], /--ifcae.*--iface/],
    ['an unknown command, with the nearest one', ['rnu'], /rnu.*run/],
    ['a missing store', ['run'], /--store/],
    ['a store of another kind', ['run', '--store', 'etcd:x', '--state-dir', '/nowhere'], /etcd:x.*file:/],
    ['a word that is no choice', ['run', '--store', 'file:/x', '--dataplane', 'xdp'], /xdp.*userspace, kernel/],
    ['a bad address', ['run', '--store', 'file:/x', '--public-ip', '10.1'], /--public-ip 10\.1 /],
    ['a bad margin', ['run', '--store', 'file:/x', '--subnet-lease-renew-margin', '0'], /1 to 1439/],
  ])('%s', async (_, argv, words) => {
    const { code, out, err } = await run(...argv)
    expect([code, out]).toEqual([2, ''])
    expect(err).toMatch(words)
    expect(err).toMatch(/^[^\n]+\n$/)
  })
})

test('a store that does not exist is one line with the remedy, exit code 1', async () => {
  const directory = temporaryDirectory()
  const { code, err } = await run('run', '--store', `file:${directory}/none`, '--state-dir', `${directory}/state`)
  expect(code).toBe(1)
  expect(err).toMatch(new RegExp(`^flannelette: .*${directory}/none.*--store\\n$`))
})

test.each([['--help'], ['run', '--help']])('%s %s begins with examples and lists the exit codes', async (...argv) => {
  const { code, out, err } = await run(...argv)
  expect([code, err]).toEqual([0, ''])
  expect(out).toMatch(/^Examples:\n/)
  expect(out).toMatch(/Exit codes:/)
})

test('without arguments the help is short and goes to stderr', async () => {
  const { code, out, err } = await run()
  expect([code, out]).toEqual([2, ''])
  expect(err).toMatch(/^Usage: flannelette/)
})

test('the version is that of the package', async () => {
  expect((await run('--version')).out).toMatch(/^\d+\.\d+\.\d+\n$/)
})

test('a Node that is too old is refused by name', () => {
  for (const version of ['18.20.1', '20.18.3']) {
    expect(() => requireNode(version)).toThrow(
      expect.objectContaining({ oneLine: expect.stringMatching(`${version}.*20.19`) }),
    )
  }
  for (const version of ['20.19.0', '22.0.0', '26.1.0']) requireNode(version)
})
