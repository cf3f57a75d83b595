// The books of several engines of one node, one for each address family, as those of one.
import type { Feature } from '../../dataplane/index.ts'
import type { EngineBooks } from '../host/dataplane.ts'

/** Absent where there are none; one is left as it is. Underlay addresses of different engines are never the same. */
export function mergeBooks(books: readonly EngineBooks[]): EngineBooks | undefined {
  if (books.length < 2) return books[0]
  return {
    features: () => mergeFeatures(books.flatMap((one) => one.features())),
    traffic: () => new Map(books.flatMap((one) => [...one.traffic()])),
    pathLimits: () => new Map(books.flatMap((one) => [...one.pathLimits()])),
    workerRestarts: () => books.flatMap((one) => one.workerRestarts()),
    offenders: () => books.flatMap((one) => one.offenders()).sort((a, b) => b.lastSeenMs - a.lastSeenMs),
  }
}

/** What one does and another does not is told of the one that does not. */
function mergeFeatures(features: readonly Feature[]): readonly Feature[] {
  const merged = new Map<string, Feature>()
  for (const feature of features) {
    if (merged.get(feature.name)?.on !== false) merged.set(feature.name, feature)
  }
  return [...merged.values()]
}
