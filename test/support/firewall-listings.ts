// What the programs list of the rules of a lab's host1, word for word.

/** As a listing has them. */
interface Networks {
  readonly network: string
  readonly subnet: string
  readonly multicast: string
}

const MASQ = '-m comment --comment "flanneld masq"'
const FORWARD = '-m comment --comment "flanneld forward"'
const CHAIN = '-A FLANNEL-POSTRTG'

/** Tables nat and filter of host1. */
export function natListing({ network, subnet, multicast }: Networks): string[] {
  return [
    ...['PREROUTING', 'INPUT', 'OUTPUT', 'POSTROUTING'].map((chain) => `-P ${chain} ACCEPT`),
    '-N FLANNEL-POSTRTG',
    `-A POSTROUTING ${MASQ} -j FLANNEL-POSTRTG`,
    `${CHAIN} -m mark --mark 0x4000/0x4000 ${MASQ} -j RETURN`,
    `${CHAIN} -s ${subnet} -d ${network} ${MASQ} -j RETURN`,
    `${CHAIN} -s ${network} -d ${subnet} ${MASQ} -j RETURN`,
    `${CHAIN} ! -s ${network} -d ${subnet} ${MASQ} -j RETURN`,
    `${CHAIN} -s ${network} ! -d ${multicast} ${MASQ} -j MASQUERADE --random-fully`,
    `${CHAIN} ! -s ${network} -d ${network} ${MASQ} -j MASQUERADE --random-fully`,
  ]
}

export function filterListing({ network }: Pick<Networks, 'network'>): string[] {
  return [
    ...['INPUT', 'FORWARD', 'OUTPUT'].map((chain) => `-P ${chain} ACCEPT`),
    '-N FLANNEL-FWD',
    `-A FORWARD ${FORWARD} -j FLANNEL-FWD`,
    `-A FLANNEL-FWD -s ${network} ${FORWARD} -j ACCEPT`,
    `-A FLANNEL-FWD -d ${network} ${FORWARD} -j ACCEPT`,
  ]
}

export function nftListing(family: string, table: string, { network, subnet, multicast }: Networks): string {
  const saddr = `${family} saddr`
  const daddr = `${family} daddr`
  return `table ${family} ${table} {
	comment "rules for ${table}"
	chain postrtg {
		comment "chain to manage traffic masquerading by flannel"
		type nat hook postrouting priority srcnat; policy accept;
		meta mark 0x00004000 return
		${saddr} ${subnet} ${daddr} ${network} return
		${saddr} ${network} ${daddr} ${subnet} return
		${saddr} != ${network} ${daddr} ${subnet} return
		${saddr} ${network} ${daddr} != ${multicast} masquerade fully-random
		${saddr} != ${network} ${daddr} ${network} masquerade fully-random
	}

	chain forward {
		comment "chain to accept flannel traffic"
		type filter hook forward priority filter; policy accept;
		${saddr} ${network} accept
		${daddr} ${network} accept
	}
}
`
}

export const IPV4 = { network: '10.244.0.0/16', subnet: '10.244.1.0/24', multicast: '224.0.0.0/4' }
export const IPV6 = { network: 'fd00:10:244::/48', subnet: 'fd00:10:244:1::/64', multicast: 'ff00::/8' }
