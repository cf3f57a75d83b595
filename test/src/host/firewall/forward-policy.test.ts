// Which chains of others would drop pod packets whatever our rules say.
import { expect, test } from 'vitest'
import { droppingChains } from '../../../../src/host/firewall/forward-policy.ts'

const LISTING = `table ip filter {
	chain INPUT {
		type filter hook input priority filter; policy drop;
	}
	chain FORWARD {
		type filter hook forward priority filter; policy drop;
	}
}
table inet firewall {
	chain passing {
		type filter hook forward priority filter; policy accept;
	}
	chain crossing {
		type filter hook forward priority filter + 10; policy drop;
	}
}
`

test('chains on the way of forwarded packets whose policy is to drop; that of iptables is ours in its mode', () => {
  const other = 'chain crossing of table inet firewall'
  expect(droppingChains(LISTING, 'nftables')).toEqual(['chain FORWARD of table ip filter', other])
  expect(droppingChains(LISTING, 'iptables')).toEqual([other])
  expect(droppingChains('', 'nftables')).toEqual([])
})
