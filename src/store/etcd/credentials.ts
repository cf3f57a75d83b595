// The TLS side of a connection to etcd: files of key, certificate and CA, or the system's own list of CAs.
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
 * @throws FlanneletteError `usage` when a named file cannot be read
 */
export function readTlsMaterial({ keyFile, certFile, caFile }: EtcdOptions): TlsMaterial {
  const rootFile = caFile ?? systemRoots()
  return {
    rootCertificate: rootFile === null ? null : readPem(rootFile, '--etcd-cafile'),
    ...(keyFile === null ? {} : { privateKey: readPem(keyFile, '--etcd-keyfile') }),
    ...(certFile === null ? {} : { certChain: readPem(certFile, '--etcd-certfile') }),
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
