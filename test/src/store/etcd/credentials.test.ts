// Files of TLS, before anything is sent: what is wrong with them is said by flag and file.
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { etcdOptions } from '../../../../src/config/etcd-options.ts'
import { readTlsMaterial } from '../../../../src/store/etcd/credentials.ts'
import { makeCertificates } from '../../../support/certificates.ts'
import { temporaryDirectory } from '../../../support/temporary-directory.ts'

function files() {
  const directory = temporaryDirectory()
  const { client, stranger } = makeCertificates(directory)
  const broken = `${directory}/broken.pem`
  writeFileSync(broken, '-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n')
  const text = `${directory}/text.pem`
  writeFileSync(text, 'no PEM at all\n')
  return { client, stranger, broken, text }
}

const read = (etcdCafile: string, etcdCertfile: string, etcdKeyfile: string) =>
  readTlsMaterial(
    etcdOptions({ etcdEndpoints: 'https://a:1', etcdPrefix: '/x', etcdCafile, etcdCertfile, etcdKeyfile }),
  )

test('key, certificate and CA that fit are handed on as they are', () => {
  const { ca, cert, key } = files().client
  const material = { rootCertificate: readFileSync(ca), certChain: readFileSync(cert), privateKey: readFileSync(key) }
  expect(read(ca, cert, key)).toEqual(material)
})

test.each([
  ['a key of another certificate', 'ca', 'cert', 'foreign key', /etcd-keyfile .* is not the key of .*--etcd-certfile /],
  ['a CA that is broken', 'broken', 'cert', 'key', /^--etcd-cafile .*broken\.pem holds no certificate/],
  ['a CA that is text', 'text', 'cert', 'key', /^--etcd-cafile .*text\.pem holds no PEM/],
  ['a certificate that is broken', 'ca', 'broken', 'key', /^--etcd-certfile .*broken\.pem holds no certificate/],
  ['a key that is a certificate', 'ca', 'cert', 'cert', /^--etcd-keyfile .*holds no private key without a passphrase/],
  ['a certificate that is a key', 'ca', 'key', 'key', /^--etcd-certfile .*holds no certificate/],
  ['a file that is missing', 'ca', 'cert', 'missing', /^--etcd-keyfile \/nope cannot be read: ENOENT/],
])('%s is wrong usage', (_, ca, cert, key, words) => {
  const { client, stranger, broken, text } = files()
  const paths: Readonly<Record<string, string>> = {
    ...client,
    'foreign key': stranger.key,
    broken,
    text,
    missing: '/nope',
  }
  const wrong = expect.objectContaining({ code: 'usage', exitCode: 2, message: expect.stringMatching(words) })
  expect(() => read(paths[ca]!, paths[cert]!, paths[key]!)).toThrow(wrong)
})

test('files that were renewed in place are read anew', () => {
  const { client, stranger } = files()
  read(client.ca, client.cert, client.key)
  copyFileSync(stranger.cert, client.cert)
  copyFileSync(stranger.key, client.key)
  expect(read(client.ca, client.cert, client.key).certChain).toEqual(readFileSync(stranger.cert))
})
