// The mark on every route that we install, registered here and nowhere else.

/**
 * Route protocol number (rtnetlink(7), rtm_protocol): 1-4 are the kernel's, 5-15 old daemons, 16-18, 42 and 186-199
 * are taken by known ones (/etc/iproute2/rt_protos). Start-up reconciles by it, and removal removes by it.
 */
export const ROUTE_PROTOCOL = 142

/** Interface alias (`ip link … alias`) of every device that we made and may therefore take down again. */
export const DEVICE_ALIAS = 'flannelette'

/** Whether a route's protocol, as `ip -json` prints it, is ours. */
export function isOurRoute(protocol: string | undefined): boolean {
  return protocol === String(ROUTE_PROTOCOL)
}

/** Whether it is a route of ours that leads somewhere: a blackhole is no dataplane's business. */
export function isOurPeerRoute({ protocol, type }: { readonly protocol?: string; readonly type?: string }): boolean {
  return isOurRoute(protocol) && type !== 'blackhole'
}
