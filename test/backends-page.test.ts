// docs/backends.md: its configs are configs, and its sums are those of the headers.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { OVERHEAD_BYTES } from '../dataplane/encap/overhead.ts'
import { checkNetworkConfig } from '../src/config/check-network-config.ts'
import { KNOWN_BACKENDS } from '../src/config/network-config.ts'
import { backendsPage, configsOf } from './support/backends-page.ts'
import { ROOT } from './support/source-tree.ts'

const PAGE = backendsPage()

describe('docs/backends.md', () => {
  test.each(configsOf(PAGE).map((config) => [config]))('has a config without a mistake or a warning: %s', (config) => {
    expect(checkNetworkConfig(config).findings).toEqual([])
  })

  test('shows more than one config', () => {
    expect(configsOf(PAGE).length).toBeGreaterThan(2)
  })

  test('names every backend that flannel has', () => {
    for (const type of KNOWN_BACKENDS) expect(PAGE).toContain(`\`${type}\``)
  })

  test('has the overheads that the headers have', () => {
    expect(PAGE).toContain(
      `| \`vxlan\`, userspace | \`/dev/net/tun\`, \`CAP_NET_ADMIN\` | ${OVERHEAD_BYTES.vxlan} over IPv4`,
    )
    expect(PAGE).toContain(
      `| \`udp\` | \`/dev/net/tun\`, \`CAP_NET_ADMIN\` | ${OVERHEAD_BYTES.udp} | ${1500 - OVERHEAD_BYTES.udp} |`,
    )
    expect(PAGE).toContain(`so ${1280 + OVERHEAD_BYTES.vxlan} outside`)
  })

  test('is what README and architecture point to', () => {
    expect(readFileSync(join(ROOT, 'README.md'), 'utf8')).toContain('(docs/backends.md)')
    expect(readFileSync(join(ROOT, 'docs/architecture.md'), 'utf8')).toContain('(backends.md)')
  })
})
