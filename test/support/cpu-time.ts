// What work costs this process, whatever else the machine does meanwhile: a bound on it holds where one on the time that
// passes would not.

/** Milliseconds of processor time that `work` takes, all threads of this process together. */
export function cpuMsOf(work: () => void): number {
  const before = process.cpuUsage()
  work()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000
}
