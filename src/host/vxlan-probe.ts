// Whether the kernel can make VXLAN devices at all. Nothing is made to find out: a device without a VNI is asked for,
// which a kernel that knows the kind refuses for that very reason, and any other kernel for another one.
import { isNetworkAdmin, networkAdminMissing } from './capability.ts'
import { attempt, commandFailure, type InNamespace } from './command.ts'

/**
 * Why the kernel can make none, in one phrase; `null` when it can. The kernel loads its module for the question, as it
 * would for a device.
 * @throws FlanneletteError `not-permitted` without CAP_NET_ADMIN, `host-command` for an answer that tells nothing
 */
export async function vxlanObstacle(where: InNamespace = {}): Promise<string | null> {
  if (!isNetworkAdmin()) throw networkAdminMissing('a VXLAN device')
  // drivers/net/vxlan/vxlan_core.c, vxlan_validate: no attributes, no device. The kind is looked up before that.
  const argv = ['ip', ...(where.namespace === undefined ? [] : ['-n', where.namespace]), 'link', 'add', 'type', 'vxlan']
  const result = await attempt(argv)
  if (/Unknown device type|not supported/i.test(result.stderr)) return 'this kernel has no vxlan devices'
  if (/Required attributes not provided|Invalid argument/i.test(result.stderr)) return null
  throw commandFailure(argv, result)
}
