// How Vitest finds and runs the tests. `npm test` runs the projects unit and netns, `npm run test:all` long as well.
import { defineConfig } from 'vitest/config'

const LONG = ['test/long/**/*.test.ts', 'test/**/*.long.test.ts']
const NETNS = 'test/netns/**/*.test.ts'

export default defineConfig({
  test: {
    passWithNoTests: false,
    projects: [
      {
        // Needs no privilege; files run side by side.
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: [NETNS, ...LONG],
          testTimeout: 20_000,
          sequence: { groupOrder: 0 },
        },
      },
      {
        // Real devices and kernel peers in network namespaces: one file at a time, or they would steal each other's CPU.
        test: {
          name: 'netns',
          include: [NETNS],
          exclude: LONG,
          maxWorkers: 1,
          testTimeout: 60_000,
          hookTimeout: 60_000,
          sequence: { groupOrder: 1 },
        },
      },
      {
        // Minutes each: speed guards, gigabytes, millions of packets.
        test: {
          name: 'long',
          include: LONG,
          maxWorkers: 1,
          testTimeout: 1_200_000,
          hookTimeout: 120_000,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
})
