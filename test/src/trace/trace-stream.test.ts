// From the engine's recorded steps, over the daemon's local socket, to a reader: nothing is lost or altered, and the
// engine is left alone when nobody reads any more.
import { join } from 'node:path'
import fc from 'fast-check'
import { afterEach, describe, expect, it } from 'vitest'
import type { RecordedStep } from '../../../dataplane/index.ts'
import { API_SOCKET, ApiServer, type Traceable } from '../../../src/daemon/api-server.ts'
import { stepFromLine, stepToLine } from '../../../src/trace/step-lines.ts'
import { openTrace } from '../../../src/trace/trace-client.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

const recorded = (n: number): RecordedStep => ({
  timeNs: 1_632_111_693_905_739_620n + BigInt(n),
  snap: '4500',
  step: { kind: 'send', message: n, address: 1, port: 8472, packets: 1, bytes: 106, segmentSize: 0, errno: 0 },
})

/** A dataplane that remembers what was asked of it, and lets the test say what its engine saw. */
class FakeTraceable implements Traceable {
  readonly asked: number[] = []
  see: (steps: readonly RecordedStep[]) => void = () => {}

  trace(steps: number, onSteps: ((steps: readonly RecordedStep[]) => void) | null): void {
    this.asked.push(steps)
    this.see = onSteps ?? (() => {})
  }
}

const servers: ApiServer[] = []
afterEach(() => {
  for (const server of servers.splice(0)) server.stop()
})

const noStatus = () => {
  throw new Error('nobody asks')
}

const apiServer = (directory: string, traceable: Traceable | null) =>
  new ApiServer({ path: join(directory, API_SOCKET), traceable: () => traceable, status: noStatus })

async function serve(traceable: Traceable | null): Promise<string> {
  const directory = temporaryDirectory()
  const server = apiServer(directory, traceable)
  servers.push(server)
  await server.start()
  return join(directory, API_SOCKET)
}

describe('a step line', () => {
  it('keeps nanoseconds to the last digit and every field of the step', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 63n }), fc.integer({ min: 0, max: 2 ** 32 - 1 }), (timeNs, id) => {
        const one: RecordedStep = { timeNs, snap: '', step: { kind: 'fit', id, length: 84, mtuBytes: 1450 } }
        expect(stepFromLine(stepToLine(one))).toEqual(one)
      }),
    )
    expect(stepFromLine(stepToLine(recorded(3)))).toEqual(recorded(3))
  })
})

describe('the trace stream', () => {
  it('brings the steps in order and ends at the number asked for', async () => {
    const traceable = new FakeTraceable()
    const trace = await openTrace(await serve(traceable), 3)
    expect(traceable.asked).toEqual([3])
    traceable.see([recorded(0), recorded(1)])
    traceable.see([recorded(2)])
    await expect.poll(() => trace.steps).toEqual([recorded(0), recorded(1), recorded(2)])
    trace.close()
    expect(traceable.asked).toEqual([3])
  })

  it('stops the recording when the reader hangs up', async () => {
    const traceable = new FakeTraceable()
    const trace = await openTrace(await serve(traceable), 100)
    trace.close()
    await expect.poll(() => traceable.asked).toEqual([100, 0])
  })

  it.each([0, -1, 1.5, 1e9])('refuses to record %s steps', async (steps) => {
    const traceable = new FakeTraceable()
    await expect(openTrace(await serve(traceable), steps)).rejects.toThrow('does not trace (400)')
    expect(traceable.asked).toEqual([])
  })

  it('says so when there is nothing to look at, or nobody', async () => {
    await expect(openTrace(await serve(null), 5)).rejects.toThrow('does not trace (409)')
    const nobody = join(temporaryDirectory(), API_SOCKET)
    await expect(openTrace(nobody, 5)).rejects.toMatchObject({ code: 'daemon-unreachable', exitCode: 4 })
  })

  it('takes over the socket of a daemon that died', async () => {
    const directory = temporaryDirectory()
    for (let start = 0; start < 2; start++) {
      const server = apiServer(directory, new FakeTraceable())
      servers.push(server)
      await server.start()
    }
    const trace = await openTrace(join(directory, API_SOCKET), 5)
    trace.close()
  })
})
