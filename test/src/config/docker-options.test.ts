// Options of a Docker daemon, byte for byte as flannel's script writes them.
import { expect, test } from 'vitest'
import { type DockerOptionsWanted, dockerOptions, routeToSubnet } from '../../../src/config/docker-options.ts'

const FILE = 'FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.74.1/24\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=false\n'
const BIP = 'DOCKER_OPT_BIP="--bip=10.1.74.1/24"\n'
const IPMASQ = 'DOCKER_OPT_IPMASQ="--ip-masq=true"\n'
const MTU = 'DOCKER_OPT_MTU="--mtu=1472"\n'
const ALL = ' --bip=10.1.74.1/24 --ip-masq=true --mtu=1472'
const BOTH = { individual: true, combined: true, key: 'DOCKER_OPTS', ipMasq: true }

test.each<[string, Partial<DockerOptionsWanted>, string]>([
  ['without a flag both forms', {}, `${BIP}${IPMASQ}${MTU}DOCKER_OPTS="${ALL}"\n`],
  ['with -i one variable an option', { combined: false }, BIP + IPMASQ + MTU],
  ['with -c one variable', { individual: false }, `DOCKER_OPTS="${ALL}"\n`],
  ['with -k another name', { key: 'CUSTOM_KEY' }, `${BIP}${IPMASQ}${MTU}CUSTOM_KEY="${ALL}"\n`],
  ['with -m no word on masquerading', { ipMasq: false }, `${BIP}${MTU}DOCKER_OPTS=" --bip=10.1.74.1/24 --mtu=1472"\n`],
])('%s', (_, wanted, text) => {
  expect(dockerOptions(FILE, {}, { ...BOTH, ...wanted })).toBe(text)
})

test('who masquerades is the opposite of what flannel does', () => {
  const text = dockerOptions(FILE.replace('=false', '=true'), {}, { ...BOTH, combined: false })
  expect(text).toContain('DOCKER_OPT_IPMASQ="--ip-masq=false"\n')
})

test('an answer that is none is refused, unless nobody asks', () => {
  const file = FILE.replace('=false', '=maybe')
  expect(() => dockerOptions(file, {}, BOTH)).toThrow(expect.objectContaining({ exitCode: 1 }))
  expect(dockerOptions(file, {}, { ...BOTH, ipMasq: false, combined: false })).toBe(BIP + MTU)
})

test('options that are there already come along: in front of the new ones, and in alphabetical order', () => {
  const environment = { DOCKER_OPTS: '--debug', DOCKER_OPT_LOG: '--log-level=warn', PATH: '/bin' }
  expect(dockerOptions(FILE, environment, BOTH)).toBe(
    `${BIP}${IPMASQ}DOCKER_OPT_LOG="--log-level=warn"\n${MTU}` +
      'DOCKER_OPTS="--debug  --bip=10.1.74.1/24 --ip-masq=true --log-level=warn --mtu=1472"\n',
  )
})

test('without subnet.env there are no options', () => {
  expect(dockerOptions(null, {}, BOTH)).toBe('DOCKER_OPTS=""\n')
  expect(routeToSubnet(null)).toBeNull()
})

test('the route that must not be there is that to the subnet', () => {
  expect(routeToSubnet(FILE)).toBe('10.1.74.0/24')
})
