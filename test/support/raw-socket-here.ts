// Whether the optional package raw-socket works here; tests of the raw driver are left out where it does not, with its
// words.
import { type TestContext, test } from 'vitest'
import { rawFailure } from '../../dataplane/io/raw/raw-package.ts'

const failure = rawFailure()

/** For beforeEach. */
export function skipWithoutRawSocket(context: TestContext): void {
  if (failure !== null) context.skip(`raw-socket does not work here: ${failure.why}`)
}

/** Tests that need it to be declared at all, or one in their place that says why they are left out. */
export function withRawSocket(declare: () => void): void {
  if (failure === null) declare()
  else test('the raw driver', skipWithoutRawSocket)
}
