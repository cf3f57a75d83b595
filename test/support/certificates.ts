// Certificates for a test's own TLS, made by openssl: a CA, a server on loopback, a client, and a CA nobody knows.
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import type { TlsFiles } from './etcd-server.ts'

export interface Certificates {
  readonly server: TlsFiles
  readonly client: TlsFiles
  /** Of another CA. */
  readonly stranger: TlsFiles
}

export function makeCertificates(directory: string): Certificates {
  const ca = makeCa(directory, 'ca')
  const other = makeCa(directory, 'other')
  return {
    server: issue(directory, 'server', ca, 'subjectAltName=IP:127.0.0.1,DNS:localhost'),
    client: issue(directory, 'client', ca, 'extendedKeyUsage=clientAuth'),
    stranger: issue(directory, 'stranger', other, 'extendedKeyUsage=clientAuth'),
  }
}

interface Ca {
  readonly key: string
  readonly cert: string
}

const NEW_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']

function makeCa(directory: string, name: string): Ca {
  const [key, cert] = [`${directory}/${name}.key`, `${directory}/${name}.pem`]
  openssl('req', '-x509', ...NEW_KEY, '-days', '2', '-subj', `/CN=${name}`, '-keyout', key, '-out', cert)
  return { key, cert }
}

function issue(directory: string, name: string, ca: Ca, extension: string): TlsFiles {
  const path = (suffix: string) => `${directory}/${name}.${suffix}`
  writeFileSync(path('ext'), `${extension}\n`)
  openssl('req', '-new', ...NEW_KEY, '-subj', `/CN=${name}`, '-keyout', path('key'), '-out', path('csr'))
  const signed = ['-CA', ca.cert, '-CAkey', ca.key, '-CAcreateserial', '-days', '2', '-extfile', path('ext')]
  openssl('x509', '-req', '-in', path('csr'), ...signed, '-out', path('pem'))
  return { ca: ca.cert, cert: path('pem'), key: path('key') }
}

function openssl(...words: string[]): void {
  execFileSync('openssl', words, { stdio: ['ignore', 'ignore', 'pipe'] })
}
