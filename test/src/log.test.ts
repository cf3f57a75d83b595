// Log lines: one event a line, in two forms, and repetitions counted instead of written.
import { closeSync, fstatSync, openSync } from 'node:fs'
import { describe, expect, onTestFinished, test } from 'vitest'
import {
  createLog,
  type LogFormat,
  type LogReader,
  MAX_TURNS,
  OPPOSITES,
  REPEAT_WINDOW_MS,
  readerOf,
} from '../../src/log.ts'
import { projectFiles } from '../support/source-tree.ts'
import { temporaryDirectory } from '../support/temporary-directory.ts'
import { VirtualClock } from '../support/virtual-clock.ts'

function make(format: LogFormat, reader: LogReader = 'other', level: 'info' | 'debug' = 'info') {
  const clock = new VirtualClock()
  const written: string[] = []
  const log = createLog({ format, level, clock, reader, sink: { write: (line) => written.push(line) } })
  return { clock, written, log }
}

test('a JSON line has level, time, event, sentence and values', () => {
  const { log, written } = make('json')
  log.info('lease-acquired', 'lease 10.244.1.0/24 is ours', { revision: 7 })
  expect(written).toHaveLength(1)
  expect(written[0]).toMatch(/^[^\n]*\n$/)
  expect(JSON.parse(written[0]!)).toEqual({
    level: 'info',
    time: '2026-01-01T00:00:00.000Z',
    event: 'lease-acquired',
    msg: 'lease 10.244.1.0/24 is ours',
    revision: 7,
  })
})

test('a text line says the same to people', () => {
  const { log, written } = make('text')
  log.warn('config-missing', 'waiting', { path: '/a b', tries: 2, list: [1] })
  expect(written).toEqual(['2026-01-01T00:00:00.000Z WARN  config-missing waiting path="/a b" tries=2 list=[1]\n'])
})

test('auto is text on a terminal, without time and with a priority for systemd, JSON elsewhere', () => {
  for (const [reader, line] of [
    ['terminal', /^2026-01-01T00:00:00.000Z WARN {2}lease-suspect it may be gone revision=7\n$/],
    ['journal', /^<4>lease-suspect it may be gone revision=7\n$/],
    ['other', /^\{"level":"warn"/],
  ] as const) {
    const { log, written } = make('auto', reader)
    log.warn('lease-suspect', 'it may be gone', { revision: 7 })
    expect(written[0]).toMatch(line)
  }
})

test('systemd gets the priorities of syslog', () => {
  const { log, written } = make('auto', 'journal', 'debug')
  for (const level of ['debug', 'info', 'warn', 'error'] as const) log[level]('event', level)
  expect(written.map((line) => line.slice(0, 3))).toEqual(['<7>', '<6>', '<4>', '<3>'])
})

test('systemd is who reads the stream that it names, and nobody else', () => {
  const file = openSync(`${temporaryDirectory()}/log`, 'w')
  onTestFinished(() => closeSync(file))
  const { dev, ino } = fstatSync(file)
  expect(readerOf({ fd: file }, `${dev}:${ino}`)).toBe('journal')
  expect(readerOf({ fd: file }, `${dev}:${ino + 1}`)).toBe('other')
  expect(readerOf({ fd: file })).toBe('other')
  expect(readerOf({ fd: file, isTTY: true }, `${dev}:${ino}`)).toBe('terminal')
})

test('klog lines are as its parsers read them, with the event where the source file would be', () => {
  const { log, written } = make('klog', 'terminal', 'debug')
  for (const level of ['debug', 'info', 'warn', 'error'] as const) log[level]('lease-acquired', 'ours', { mtu: 1450 })
  const header = /^([IWEF])(\d{2})(\d{2}) (\d{2}):(\d{2}):(\d{2})\.(\d{6}) +(\d+) ([^:\s]+):(\d+)\] (.*)\n$/
  const parsed = written.map((line) => header.exec(line))
  expect(parsed.map((match) => match?.[1])).toEqual(['I', 'I', 'W', 'E'])
  expect(parsed[0]?.slice(7)).toEqual(['000000', String(process.pid), 'lease-acquired', '1', 'ours mtu=1450'])
})

test('details are written only when asked for', () => {
  const quiet = make('json')
  const verbose = make('json', 'other', 'debug')
  for (const { log } of [quiet, verbose]) log.debug('detail', 'detail')
  expect([quiet.written.length, verbose.written.length]).toEqual([0, 1])
})

test('a line feed in a value cannot make a second line', () => {
  for (const format of ['text', 'json', 'klog'] as const) {
    const { log, written } = make(format)
    log.info('event', 'o\nne', { value: 'a\nb' })
    expect(written[0]?.trimEnd()).not.toContain('\n')
  }
})

test('no line holds what a terminal obeys, whoever wrote the words', () => {
  for (const format of ['text', 'json', 'klog'] as const) {
    const { log, written } = make(format)
    log.info('event', 'key \u001b[2J\u009b1m', { value: '\u001b]0;x\u0007', other: 'a\u007f\u009b b' })
    // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
    expect(written[0]?.trimEnd()).not.toMatch(format === 'json' ? /[\u0000-\u001f]/ : /[\u0000-\u001f\u007f-\u009f]/)
  }
})

describe('a repeated warning', () => {
  test('is written once, then counted, and the count comes at the end of the window', async () => {
    const { log, written, clock } = make('json')
    for (let round = 0; round < 419; round++) log.warn('store-call-failed', 'no answer')
    expect(written).toHaveLength(1)
    await clock.advance(REPEAT_WINDOW_MS)
    expect(written).toHaveLength(2)
    expect(JSON.parse(written[1]!)).toMatchObject({ repeated: 418, msg: 'no answer (418 more times within 60 s)' })
  })

  test('that comes once in a window is written as it is, with no count behind it', async () => {
    const { log, written, clock } = make('json')
    for (let round = 0; round < 3; round++) {
      log.error('stop-failed', 'no answer')
      await clock.advance(REPEAT_WINDOW_MS + 1)
    }
    expect(written).toHaveLength(3)
    expect(written.join('')).not.toContain('repeated')
  })

  test('does not hide another one', () => {
    const { log, written } = make('json')
    log.warn('peer-left-out', 'no forwarding to a')
    log.warn('peer-left-out', 'no forwarding to b')
    log.error('peer-left-out', 'no forwarding to a')
    expect(written).toHaveLength(3)
  })

  test('is not lost when the log closes', () => {
    const { log, written, clock } = make('json')
    log.warn('store-call-failed', 'no answer')
    log.warn('store-call-failed', 'no answer')
    log.close()
    expect(JSON.parse(written[1]!)).toMatchObject({ repeated: 1 })
    expect(clock.timers).toBe(0)
  })

  test('thousands of different ones are all written, in bounded memory', () => {
    const { log, written, clock } = make('json')
    for (let index = 0; index < 2000; index++) log.warn('odd', `number ${index}`)
    expect(written).toHaveLength(2000)
    expect(clock.timers).toBeLessThan(300)
  })
})

describe('a change of state', () => {
  const events = (written: readonly string[]) => written.map((line) => JSON.parse(line).event)

  test('is written each time, however soon it comes back', async () => {
    const { log, written, clock } = make('json')
    for (let round = 0; round < 2; round++) {
      log.warn('underlay-lost', 'eth0 is down')
      await clock.advance(1000)
      log.info('underlay-back', 'eth0 is up')
    }
    expect(events(written)).toEqual(Array(2).fill(['underlay-lost', 'underlay-back']).flat())
  })

  test('to and fro all the time is written six times a minute, and at the end of it as it stands', async () => {
    const { log, written, clock } = make('json')
    for (let second = 0; second < 120; second++) {
      log.warn('store-disconnected', 'store etcd is away')
      log.info('store-connected', 'store etcd answers')
      await clock.advance(1000)
    }
    expect(written.length).toBeLessThanOrEqual(2 * (MAX_TURNS + 1))
    expect(JSON.parse(written[MAX_TURNS]!)).toMatchObject({
      event: 'store-connected',
      msg: 'store etcd answers (the last of 115 more changes within 60 s)',
    })
    await clock.advance(2 * REPEAT_WINDOW_MS)
    log.warn('store-disconnected', 'store etcd is away')
    expect(JSON.parse(written.at(-1)!)).toMatchObject({ msg: 'store etcd is away' })
  })

  test('to and fro of one pair keeps no other, nor those of many peers, from being written', async () => {
    const { log, written } = make('json')
    for (let peer = 0; peer < 50; peer++) log.warn('peer-pending', `no route to peer ${peer}`)
    for (let peer = 0; peer < 50; peer++) log.info('peer-programmed', `peer ${peer} is programmed`)
    expect(written).toHaveLength(100)
    for (let round = 0; round < 10; round++) {
      log.warn('underlay-lost', 'eth0 is down')
      log.info('underlay-back', 'eth0 is up')
    }
    log.error('device-lost', 'flannel.1 is gone')
    expect(written).toHaveLength(100 + MAX_TURNS + 1)
    log.close()
    expect(JSON.parse(written.at(-1)!)).toMatchObject({ event: 'underlay-back' })
  })

  test('between two warnings as well', () => {
    const { log, written } = make('json')
    for (let round = 0; round < 2; round++) {
      log.error('device-lost', 'flannel.1 is gone')
      log.warn('device-restored', 'flannel.1 is there again')
    }
    expect(events(written)).toEqual(['device-lost', 'device-restored', 'device-lost', 'device-restored'])
  })

  test('comes after the count of what it ends, and what repeats without it is still counted', () => {
    const { log, written, clock } = make('json')
    for (let round = 0; round < 5; round++) log.error('device-lost', 'flannel.1 is gone')
    log.warn('device-restored', 'flannel.1 is there again')
    for (let round = 0; round < 5; round++) log.error('device-lost', 'flannel.1 is gone')
    expect(written.map((line) => JSON.parse(line).repeated ?? 0)).toEqual([0, 4, 0, 0])
    log.close()
    expect(JSON.parse(written.at(-1)!)).toMatchObject({ event: 'device-lost', repeated: 4 })
    expect(clock.timers).toBe(0)
  })

  test('does not make other repetitions news', () => {
    const { log, written } = make('json')
    for (let round = 0; round < 3; round++) {
      log.warn('store-call-failed', 'no answer')
      log.info('underlay-back', 'eth0 is up')
    }
    expect(events(written).filter((event) => event === 'store-call-failed')).toHaveLength(1)
  })

  test('is one that the code tells of', () => {
    const code = projectFiles()
      .filter(({ path }) => path.startsWith('src/') && path !== 'src/log.ts')
      .map(({ text }) => text)
      .join()
    expect(OPPOSITES.flat().filter((event) => !code.includes(`'${event}'`))).toEqual([])
  })
})
