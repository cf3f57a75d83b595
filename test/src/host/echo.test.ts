// What ping prints, read back; and series whose last answers ping did not wait for, by a ping that follows a script.
import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { type EchoOptions, echo, parseEcho } from '../../../src/host/echo.ts'
import { linesOf } from '../../support/output-lines.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

describe("ping's words", () => {
  const counts = '3 packets transmitted, 0 received, +3 errors, 100% packet loss, time 2ms'

  test.each([
    [
      'answers',
      '5 packets transmitted, 4 received, 20% packet loss, time 204ms\nrtt min/avg/max/mdev = 0.101/0.129/0.180/0.010 ms\n',
      { sent: 5, received: 4, averageMs: 0.129, tooBig: null, refusal: '' },
    ],
    [
      'duplicates',
      '3 packets transmitted, 3 received, +2 duplicates, 0% packet loss, time 1ms',
      { sent: 3, received: 3 },
    ],
    ['silence', counts, { sent: 3, received: 0, averageMs: null, tooBig: null, refusal: '' }],
    [
      'too big for the device',
      `ping: local error: message too long, mtu=1450\n${counts}`,
      { tooBig: { limitBytes: 1450, by: null }, refusal: '' },
    ],
    [
      'too big for a router',
      `From 192.0.2.9 icmp_seq=1 Frag needed and DF set (mtu = 1400)\n${counts}`,
      { tooBig: { limitBytes: 1400, by: '192.0.2.9' }, refusal: '' },
    ],
    [
      'unreachable',
      `From 192.0.2.9 icmp_seq=1 Destination Host Unreachable\n${counts}`,
      { refusal: 'Destination Host Unreachable from 192.0.2.9' },
    ],
    [
      'unreachable, by a router whose address ends with colons',
      `From fd00:10:244:28:: icmp_seq=1 Destination unreachable: No route\n${counts}`,
      { refusal: 'Destination unreachable: No route from fd00:10:244:28::' },
    ],
    [
      'too big for such a router, with the colon that some versions put behind it',
      `From fd00:1::: icmp_seq=1 Packet too big: mtu=1400\n${counts}`,
      { tooBig: { limitBytes: 1400, by: 'fd00:1::' } },
    ],
    ['forbidden', `ping: sendmsg: Operation not permitted\n${counts}`, { refusal: 'Operation not permitted' }],
    ['no route', 'ping: connect: Network is unreachable', { sent: 0, refusal: 'Network is unreachable' }],
  ])('%s', (_, output, expected) => {
    expect(parseEcho(output)).toMatchObject(expected)
  })

  test('no ping at all', () => {
    expect(parseEcho('ping: x: Name or service not known')).toBeNull()
  })
})

/** What ping prints of a series in which these requests were answered, each after a millisecond times its number. */
function series(sent: number, answered: readonly number[], more: readonly string[] = [], errors = ''): string {
  const lines = answered.map((number) => `64 bytes from 192.0.2.2: icmp_seq=${number} ttl=64 time=${number}.00 ms`)
  const average = answered.reduce((sum, number) => sum + number, 0) / answered.length
  return [
    ...[...lines, ...more, '', '--- 192.0.2.2 ping statistics ---'],
    `${sent} packets transmitted, ${answered.length} received,${errors} 0% packet loss, time 9ms`,
    ...(answered.length === 0 ? [] : [`rtt min/avg/max/mdev = 1.0/${average.toFixed(3)}/9.0/1.0 ms`]),
  ].join('\n')
}

/** A ping that prints one of these after the other; what it was asked so far, a line each. */
function scriptedPing(outputs: readonly string[]): () => string[] {
  const directory = temporaryDirectory()
  const asked = join(directory, 'asked')
  outputs.forEach((output, index) => {
    writeFileSync(join(directory, `answer-${index + 1}`), output)
  })
  const lines = ['#!/bin/sh', `echo "$*" >> ${asked}`, `cat ${directory}/answer-$(wc -l < ${asked})`]
  writeFileSync(join(directory, 'ping'), `${lines.join('\n')}\n`)
  chmodSync(join(directory, 'ping'), 0o755)
  const path = process.env.PATH
  onTestFinished(() => {
    process.env.PATH = path
  })
  process.env.PATH = `${directory}:${path}`
  return () => linesOf(readFileSync(asked, 'utf8'))
}

describe('an answer that ping did not wait for', () => {
  const ask = (outputs: readonly string[], options: Partial<EchoOptions> = {}) => {
    const asked = scriptedPing(outputs)
    const result = echo('192.0.2.2', { count: 4, waitMs: 1000, intervalMs: 200, ...options })
    return result.then((found) => ({ ...found, asked: asked() }))
  }
  const [all, one, none] = [series(4, [1, 2, 3, 4]), series(1, [1]), series(1, [])]

  test('is asked for once more, in the same way, and is not lost', async () => {
    const options = { packetBytes: 1450, dontFragment: true }
    const { asked, ...found } = await ask([series(4, [1, 2, 3]), one], options)
    expect(found).toEqual({ sent: 4, received: 4, averageMs: (1 + 2 + 3 + 1) / 4, tooBig: null, refusal: '' })
    const words = '-W 1 -i 0.2 -s 1422 -M do 192.0.2.2'
    expect(asked).toEqual([`-n -c 4 ${words}`, `-n -c 1 ${words}`])
  })

  test('may be late again: as many are asked for as were not heard of', async () => {
    const { asked, ...found } = await ask([series(4, [1]), series(3, [1, 2]), one])
    expect(found).toMatchObject({ sent: 4, received: 4 })
    expect(asked.map((words) => words.slice(0, 7))).toEqual(['-n -c 4', '-n -c 3', '-n -c 1'])
  })

  test('is lost when silence follows to the end', async () => {
    const { asked, ...found } = await ask([series(4, [1, 2, 3]), none])
    expect(found).toMatchObject({ sent: 4, received: 3, averageMs: 2 })
    expect(asked).toHaveLength(2)
  })

  test('that is a refusal the second time is one', async () => {
    const { refusal, received } = await ask([series(4, [1, 2, 3]), 'ping: connect: Network is unreachable'])
    expect({ refusal, received }).toEqual({ refusal: 'Network is unreachable', received: 3 })
  })

  test('is asked for behind a redirect, which is no answer', async () => {
    const redirect = 'From 192.0.2.9: icmp_seq=4 Redirect Host(New nexthop: 192.0.2.8)'
    const { asked } = await ask([series(4, [1, 2, 3], [redirect]), one])
    expect(asked).toHaveLength(2)
  })

  const refused = 'From 192.0.2.9 icmp_seq=4 Destination Host Unreachable'
  test.each<[string, string, number, Partial<EchoOptions>]>([
    ['all were answered', all, 4, {}],
    ['later ones were answered', series(4, [1, 2, 4]), 3, {}],
    ['somebody refused it', series(4, [1, 2, 3], [refused], ' +1 errors,'), 3, {}],
    ['this host did not send it', series(4, [1, 2, 3], ['ping: sendmsg: No'], ' +1 errors,'), 3, {}],
    ['nothing was answered, and ping has waited', series(4, []), 0, {}],
    ['ping waits as long between requests', series(4, [1, 2, 3]), 3, { intervalMs: 1000 }],
    ['one answer is enough', series(4, [1]), 1, { anyAnswer: true }],
  ])('is none where %s', async (_, output, received, options) => {
    expect(await ask([output], options)).toMatchObject({ sent: 4, received, asked: [expect.any(String)] })
  })

  test('is none where ping waited long enough, although later ones are asked for', async () => {
    const { asked, received } = await ask([series(9, [1]), series(4, [])], { count: 9 })
    expect([asked[1]?.slice(0, 7), received]).toEqual(['-n -c 4', 1])
  })
})
