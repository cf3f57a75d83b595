// What iproute2 says of failed commands, and how programs that fail are reported.
import { describe, expect, test } from 'vitest'
import { FlanneletteError } from '../../../src/errors.ts'
import { attempt, firstLine, inNamespace, run } from '../../../src/host/command.ts'
import { explainFailures } from '../../../src/host/ip.ts'
import { replaceTable } from '../../../src/host/nft.ts'

describe('a batch', () => {
  test('pairs each failed command with what was said of it', () => {
    const stderr =
      'RTNETLINK answers: No buffer space available\nCommand failed -:2\nCannot find device "x"\nCommand failed -:5\n'
    expect(explainFailures(stderr)).toEqual([
      { index: 1, message: 'No buffer space available' },
      { index: 4, message: 'Cannot find device "x"' },
    ])
  })

  test('tells a failure that came without words', () => {
    expect(explainFailures('Command failed -:1\n')).toEqual([{ index: 0, message: 'failed' }])
  })

  test('takes no warning for a failure', () => {
    expect(explainFailures('Warning: something is deprecated\n')).toEqual([])
  })
})

describe('a program', () => {
  const failureOf = async (argv: string[], namespace?: string) => {
    const error = await run(argv, { namespace }).catch((reason: unknown) => reason)
    expect(error).toBeInstanceOf(FlanneletteError)
    return error as FlanneletteError
  }

  test('that fails is reported with its command and its first line', async () => {
    const error = await failureOf(['sh', '-c', 'echo "Error: no such thing" >&2; echo more >&2; exit 3'])
    expect(error.code).toBe('host-command')
    expect(error.message).toMatch(/failed: no such thing$/)
  })

  test('that lacks the right says how to get it', async () => {
    const error = await failureOf(['sh', '-c', 'echo "RTNETLINK answers: Operation not permitted" >&2; exit 2'])
    expect(error.code).toBe('not-permitted')
    expect(error.remedy).toContain('CAP_NET_ADMIN')
  })

  test('that is missing is named with the package that brings it', async () => {
    const saying = 'echo "exec of \\"iperf3\\" failed: No such file or directory" >&2; exit 255'
    expect((await failureOf(['sh', '-c', saying])).oneLine).toMatch(/`iperf3` is missing; .*apt-get install iperf3/)
    expect((await failureOf(['no-such-program-here'])).message).toBe('the program `no-such-program-here` is missing')
  })

  test('gets its input, and its exit code is handed on', async () => {
    expect(await attempt(['sh', '-c', 'cat; exit 7'], { input: 'word' })).toMatchObject({ exitCode: 7, stdout: 'word' })
  })

  test('that reads no input does not disturb', async () => {
    expect((await attempt(['true'], { input: 'x'.repeat(1 << 20) })).exitCode).toBe(0)
  })

  test('that a signal ended counts as in a shell', async () => {
    expect((await attempt(['sh', '-c', 'kill -TERM $$'])).exitCode).toBe(143)
  })

  test('that does not end is ended and reported', async () => {
    const error = await attempt(['tail', '-f', '/dev/null'], { timeoutMs: 50 }).catch((reason: unknown) => reason)
    expect((error as FlanneletteError).message).toContain('time limit')
  })
})

test('a namespace goes in front of the program, none leaves it alone', () => {
  expect(inNamespace('flx-a', ['ping', '::1'])).toEqual(['ip', 'netns', 'exec', 'flx-a', 'ping', '::1'])
  expect(inNamespace(undefined, ['ping', '::1'])).toEqual(['ping', '::1'])
})

test('the first line is the one that says something', () => {
  expect(firstLine('\nCommand failed -:1\nError: argument "x" is wrong\n')).toBe('argument "x" is wrong')
  expect(firstLine('')).toBe('')
})

test('a table is replaced in one transaction that also works the first time', () => {
  expect(replaceTable('bridge', 'faults', '')).toBe('table bridge faults {}\ndelete table bridge faults\n')
  expect(replaceTable('ip', 't', ' chain c {}')).toMatch(
    /^table ip t \{\}\ndelete table ip t\ntable ip t \{\n chain c \{\}\n\}\n$/,
  )
})
