// The ruler finds the limit wherever it is, with few questions, and is not led astray by a lost packet.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { measure, type SizeAnswer, SMALLEST_BYTES } from '../../../src/doctor/mtu-ruler.ts'

/** A path with a limit: `named` when somebody says so. */
function path(limit: number, named: boolean) {
  const asked: number[] = []
  const ask = async (bytes: number): Promise<SizeAnswer> => {
    asked.push(bytes)
    return { passes: bytes <= limit, limitBytes: bytes > limit && named ? limit : null }
  }
  return { asked, ask }
}

describe('the ruler', () => {
  test('asks once when all is well', async () => {
    const { asked, ask } = path(1450, false)
    expect(await measure(1450, ask)).toEqual({ largestBytes: 1450, namedBytes: null })
    expect(asked).toEqual([1450])
  })

  test('finds every limit, named or not, in few rounds', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 576, max: 8999 }), fc.boolean(), async (limit, named) => {
        const { asked, ask } = path(limit, named)
        expect(await measure(9000, ask)).toEqual({ largestBytes: limit, namedBytes: named ? limit : null })
        expect(asked.length).toBeLessThan(named ? 4 : 50)
      }),
    )
  })

  test('says so when nothing large passes', async () => {
    expect(await measure(1450, path(SMALLEST_BYTES - 1, false).ask)).toMatchObject({ largestBytes: null })
  })

  test('finds it although the answer to any one question is late', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 576, max: 8999 }), fc.integer({ min: 0, max: 40 }), async (limit, late) => {
        const { asked, ask } = path(limit, false)
        const losing = async (bytes: number): Promise<SizeAnswer> => {
          const isLate = asked.length === late
          const answer = await ask(bytes)
          return isLate ? { passes: false, limitBytes: null } : answer
        }
        expect(await measure(9000, losing)).toMatchObject({ largestBytes: limit })
      }),
    )
  })

  test('believes a path that passes what it has refused a moment before', async () => {
    const asked: number[] = []
    const ask = async (bytes: number): Promise<SizeAnswer> => {
      asked.push(bytes)
      return asked.length === 1 ? { passes: false, limitBytes: 1449 } : { passes: bytes <= 1450, limitBytes: null }
    }
    expect(await measure(1450, ask)).toEqual({ largestBytes: 1450, namedBytes: 1449 })
    expect(asked).toEqual([1450, 1449, 1450])
  })

  test('ends, and believes the largest that passed, whatever is lost', async () => {
    const answers = fc.infiniteStream(fc.boolean())
    await fc.assert(
      fc.asyncProperty(answers, async (stream) => {
        let largest = 0
        const ask = async (bytes: number) => {
          const passes = bytes < 1450 && stream.next().value === true
          if (passes) largest = Math.max(largest, bytes)
          return { passes, limitBytes: null }
        }
        expect((await measure(1450, ask)).largestBytes).toBe(largest === 0 ? null : largest)
      }),
    )
  })
})
