// A hint that something in a directory changed. Hints only: inotify follows the directory that was there when the watch
// began, so whoever uses this also looks from time to time by itself.
import { type FSWatcher, watch } from 'node:fs'

/** Calls `wake` after changes in `path` until the returned function is called. A missing directory gives no hints. */
export function watchDirectory(path: string, wake: () => void): () => void {
  let watcher: FSWatcher | null = null
  try {
    watcher = watch(path, { persistent: false }, wake)
    watcher.on('error', () => watcher?.close())
  } catch {
    // The slow look of the caller takes over.
  }
  return () => watcher?.close()
}
