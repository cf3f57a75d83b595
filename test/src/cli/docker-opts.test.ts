// `flannelette docker-opts` from file to file.
import { existsSync, lstatSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
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

test('makes no directory for its file, and says what is missing', async () => {
  const directory = temporaryDirectory()
  const { code, err } = await dockerOpts('-d', `${directory}/none/such/file`)
  expect(code).toBe(2)
  const path = `${directory}/none/such`
  expect(err).toBe(
    `flannelette: ${path}/file cannot be written: ${path} is no directory; choose another file with -d\n`,
  )
  expect(readdirSync(directory)).toEqual([])
})

test('writes what a link leads to, also a device, and leaves the link', async () => {
  const directory = temporaryDirectory()
  const [file, link, sink] = [`${directory}/file`, `${directory}/link`, `${directory}/sink`]
  writeFileSync(file, 'old, and longer than what comes: '.repeat(100))
  symlinkSync(file, link)
  symlinkSync('/dev/null', sink)
  for (const path of [link, sink]) {
    expect((await dockerOpts('-c', '-m', '-d', path)).code).toBeUndefined()
    expect(lstatSync(path).isSymbolicLink()).toBe(true)
  }
  expect(readFileSync(file, 'utf8')).toBe('DOCKER_OPTS=" --bip=10.1.74.1/24 --mtu=1472"\n')
  expect(lstatSync('/dev/null').isCharacterDevice()).toBe(true)
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
