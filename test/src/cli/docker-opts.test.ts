// `flannelette docker-opts` from file to file.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { expect, test, vi } from 'vitest'
import { main } from '../../../src/main.ts'
import { temporaryDirectory } from '../../support/temporary-directory.ts'

const routes: object[] = []
vi.mock(import('../../../src/host/ip.ts'), async (original) => ({
  ...(await original()),
  showJson: async <T>() => routes as T[],
}))

async function dockerOpts(...words: string[]) {
  const directory = temporaryDirectory()
  const [from, to] = [`${directory}/subnet.env`, `${directory}/docker.env`]
  writeFileSync(from, 'FLANNEL_SUBNET=10.1.74.1/24\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=true\n')
  let err = ''
  const write = (text: string) => {
    err += text
  }
  const code = await main(['docker-opts', '-f', from, '-d', to, ...words], { out: write, err: write })
  return { code, err, text: existsSync(to) ? readFileSync(to, 'utf8') : '' }
}

test('writes what its flags ask for', async () => {
  const { code, text } = await dockerOpts('-c', '-m', '-k', 'OPTIONS')
  expect([code, text]).toEqual([undefined, 'OPTIONS=" --bip=10.1.74.1/24 --mtu=1472"\n'])
})

test.each(['', 'two words', '1ST', 'A=B'])('refuses %j as the name of a variable, and writes nothing', async (name) => {
  const { code, err, text } = await dockerOpts('-k', name)
  expect([code, text]).toEqual([2, ''])
  expect(err).toMatch(/^flannelette: -k .*is no name of a variable; give one such as DOCKER_OPTS\n$/)
})

test('fails after writing when a route leads to the subnet through another node', async () => {
  routes.push({ dst: '10.1.74.0/24', dev: 'eth0', gateway: '192.0.2.9' })
  const { code, err, text } = await dockerOpts('-i')
  expect([code, text.split('\n').length]).toEqual([1, 4])
  expect(err).toMatch(/^flannelette: .*10\.1\.74\.0\/24 via 192\.0\.2\.9 already; remove it with/)
})
