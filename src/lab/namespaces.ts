// The network namespaces of a lab: made, found again by their names, and removed with everything that runs in them.
import { attempt, run } from '../host/command.ts'
import { batch, batchEach } from '../host/ip.ts'
import { belongsToLab, type LabPlan } from './plan.ts'
import { endProcesses, identify } from './process-identity.ts'

/** All namespaces of a plan. */
function plannedNamespaces(plan: LabPlan): string[] {
  const members = [...plan.hosts, ...plan.pods].map((member) => member.namespace)
  return plan.switchNamespace === null ? members : [plan.switchNamespace, ...members]
}

/** @throws FlanneletteError `host-command` when one of them exists already, or may not be made */
export async function createNamespaces(plan: LabPlan): Promise<void> {
  await batch(
    'ip',
    plannedNamespaces(plan).map((name) => `netns add ${name}`),
  )
}

/** Namespaces that exist now and belong to the lab of that name. */
export async function existingNamespaces(lab: string): Promise<string[]> {
  const listed = await run(['ip', 'netns', 'list'])
  const names = listed.split('\n').map((line) => line.split(' ')[0] ?? '')
  return names.filter((name) => belongsToLab(name, lab))
}

/**
 * Ends what runs in the namespaces and deletes them; devices and routes go with them. The kernel keeps a namespace
 * alive as long as a process is in it, so the processes come first.
 */
export async function removeNamespaces(names: readonly string[]): Promise<void> {
  const inside = await Promise.all(names.map(processesIn))
  const identities = inside.flat().flatMap((pid) => identify(pid) ?? [])
  await endProcesses(identities, 1_500)
  await batchEach(
    'ip',
    names.map((name) => `netns delete ${name}`),
  )
}

async function processesIn(namespace: string): Promise<number[]> {
  const { stdout } = await attempt(['ip', 'netns', 'pids', namespace])
  return stdout.split('\n').filter(Boolean).map(Number)
}
