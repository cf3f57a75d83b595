// The TLS side of a connection to etcd: files of key, certificate and CA, or the system's own list of CAs.
import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import type { EtcdOptions } from '../../config/etcd-options.ts'
import { FlanneletteError } from '../../errors.ts'

/** Where systems keep their CAs: Debian, Fedora, SUSE, Alpine. */
const SYSTEM_ROOTS = [
  '/etc/ssl/certs/ca-certificates.crt',
  '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/ca-bundle.pem',
  '/etc/ssl/cert.pem',
]

export interface TlsMaterial {
  /** PEM; `null`: those that come with Node. */
  readonly rootCertificate: Buffer | null
  readonly privateKey?: Buffer
  readonly certChain?: Buffer
}

/**
 * What to speak TLS with, read anew for each connection, since certificates are renewed in place.
 * @throws FlanneletteError `usage` when a named file cannot be read, or key and certificate are not a pair
 */
export function readTlsMaterial({ keyFile, certFile, caFile }: EtcdOptions): TlsMaterial {
  const rootFile = caFile ?? systemRoots()
  const rootCertificate = rootFile === null ? null : readPem(rootFile, '--etcd-cafile')
  if (caFile !== null) parse(CERTIFICATE, caFile, '--etcd-cafile', rootCertificate!)
  if (keyFile === null || certFile === null) return { rootCertificate }
  const [privateKey, certChain] = [readPem(keyFile, '--etcd-keyfile'), readPem(certFile, '--etcd-certfile')]
  const key = parse(KEY, keyFile, '--etcd-keyfile', privateKey)
  if (!parse(CERTIFICATE, certFile, '--etcd-certfile', certChain).checkPrivateKey(key)) {
    const message = `--etcd-keyfile ${keyFile} is not the key of the certificate in --etcd-certfile ${certFile}`
    throw new FlanneletteError('usage', message, { remedy: 'give the key that belongs to it' })
  }
  return { rootCertificate, privateKey, certChain }
}

interface Kind<T> {
  readonly name: string
  parse(pem: Buffer): T
}

const CERTIFICATE: Kind<X509Certificate> = { name: 'certificate', parse: (pem) => new X509Certificate(pem) }
const KEY: Kind<KeyObject> = { name: 'private key without a passphrase', parse: (pem) => createPrivateKey(pem) }

/** Here rather than deep in TLS, where neither flag nor file would be known any more. */
function parse<T>({ name, parse: attempt }: Kind<T>, path: string, flag: string, pem: Buffer): T {
  try {
    return attempt(pem)
  } catch (cause) {
    throw new FlanneletteError('usage', `${flag} ${path} holds no ${name}`, { remedy: 'give another file', cause })
  }
}

function systemRoots(): string | null {
  const named = process.env.SSL_CERT_FILE
  return [named ?? '', ...SYSTEM_ROOTS].find((path) => path !== '' && existsSync(path)) ?? null
}

function readPem(path: string, flag: string): Buffer {
  let content: Buffer
  try {
    content = readFileSync(path)
  } catch (error) {
    throw new FlanneletteError('usage', `${flag} ${path} cannot be read: ${(error as Error).message}`, { cause: error })
  }
  if (content.includes('-----BEGIN ')) return content
  throw new FlanneletteError('usage', `${flag} ${path} holds no PEM`, { remedy: 'give a file in PEM form' })
}
