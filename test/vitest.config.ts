// How Vitest finds and runs the tests. `npm test` runs the projects unit and netns, `npm run test:all` the others as
// well: measured (first, while the machine is at its quietest), uml and long.
import { defineConfig } from 'vitest/config'

const LONG = ['test/long/**/*.test.ts', 'test/**/*.long.test.ts']
const NETNS = 'test/netns/**/*.test.ts'
const UML = 'test/uml/**/*.test.ts'
const MEASURED = 'test/measured/**/*.test.ts'
/** What is waited for comes within milliseconds; a busy machine may take seconds. */
const PATIENT = { poll: { timeout: 10_000 } }

export default defineConfig({
  test: {
    passWithNoTests: false,
    projects: [
      {
        // Needs no privilege; files run side by side, one for each core of a small machine.
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: [NETNS, UML, MEASURED, ...LONG],
          maxWorkers: 2,
          testTimeout: 30_000,
          hookTimeout: 30_000,
          expect: PATIENT,
          sequence: { groupOrder: 0 },
        },
      },
      {
        // Ratios, garbage collections, deadlines of large tables: alone on the machine.
        test: {
          name: 'measured',
          include: [MEASURED],
          maxWorkers: 1,
          testTimeout: 1_200_000,
          hookTimeout: 120_000,
          expect: PATIENT,
          sequence: { groupOrder: 1 },
        },
      },
      {
        // Real devices and kernel peers in network namespaces, each file in some of its own. Much of the time
        // they wait: three at a time, on two cores. The limits are for what hangs: nothing is slow enough to need them on a
        // machine that only has much to do.
        test: {
          name: 'netns',
          include: [NETNS],
          exclude: LONG,
          maxWorkers: 3,
          testTimeout: 180_000,
          hookTimeout: 180_000,
          expect: PATIENT,
          sequence: { groupOrder: 2 },
        },
      },
      {
        // A second kernel as a process: slow, because nothing of it runs on bare hardware.
        test: {
          name: 'uml',
          include: [UML],
          maxWorkers: 1,
          testTimeout: 240_000,
          hookTimeout: 120_000,
          expect: PATIENT,
          sequence: { groupOrder: 3 },
        },
      },
      {
        // Minutes each: gigabytes, millions of packets, outages, whole matrices. Two at a time.
        test: {
          name: 'long',
          include: LONG,
          maxWorkers: 2,
          testTimeout: 1_200_000,
          hookTimeout: 120_000,
          expect: PATIENT,
          sequence: { groupOrder: 4 },
        },
      },
    ],
  },
})
