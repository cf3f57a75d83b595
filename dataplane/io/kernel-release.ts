// Which kernel this is, for the few faults that cannot be probed.

/** Whether a kernel release (`6.18.44-fc`, as uname -r prints it) is at least `wanted`. Unknown text counts as old. */
export function isKernelAtLeast(release: string, wanted: readonly [number, number, number]): boolean {
  const match = /^(\d+)\.(\d+)(?:\.(\d+))?/.exec(release)
  if (match === null) return false
  const found = [match[1], match[2], match[3] ?? '0'].map(Number)
  for (const [index, want] of wanted.entries()) {
    if (found[index]! !== want) return found[index]! > want
  }
  return true
}
