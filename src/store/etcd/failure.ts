// What etcd, gRPC and TLS say when a call fails, in words for people: which endpoint, what happened, what to do.
import type { EtcdOptions } from '../../config/etcd-options.ts'
import { FlanneletteError } from '../../errors.ts'

/** `away`: another endpoint, or this one later, may answer. `refused`: somebody has to change something. */
export interface EtcdFailure {
  readonly kind: 'away' | 'refused' | 'no-auth-here' | 'compacted'
  /** Another endpoint of the list may do better. */
  readonly elsewhere: boolean
  readonly endpoint: string
  readonly why: string
  readonly remedy: string
}

/** As grpc-js writes it: `14 UNAVAILABLE: what happened`. */
const STATUS = /^(?:\w*Error: ?)?(\d+) ([A-Z_]+): (.*)$/s

const CERTIFICATE = /certificate|self-signed|altnames|Hostname\/IP|\bCERT_|\bssl3?_|tlsv1|SSL routines|EPROTO/i

/** Tells what kind of failure an error of etcd3 is. */
export function failureOf(error: unknown, endpoint: string, options: EtcdOptions): EtcdFailure {
  const text = error instanceof Error ? error.message : String(error)
  const [, , status = '', details = text] = STATUS.exec(text) ?? []
  const base = { endpoint, why: details, remedy: `check that etcd runs at ${endpoint}` }
  if (/required revision has been compacted/.test(text)) return { ...base, kind: 'compacted', elsewhere: false }
  if (/authentication is not enabled/.test(text)) return { ...base, kind: 'no-auth-here', elsewhere: false }
  return loginFailure(text, base, options) ?? tlsFailure(text, base) ?? { ...base, ...absence(status, text, base) }
}

type Base = Pick<EtcdFailure, 'endpoint' | 'why' | 'remedy'>

function loginFailure(text: string, base: Base, { username, prefix }: EtcdOptions): EtcdFailure | null {
  const refused = { endpoint: base.endpoint, kind: 'refused', elsewhere: false } as const
  if (/authentication failed|invalid auth token|UNAUTHENTICATED/.test(text)) {
    const why = `authentication failed for user "${username ?? ''}"`
    return { ...refused, why, remedy: 'check --etcd-username and --etcd-password' }
  }
  if (/user name is empty/.test(text)) {
    return { ...refused, why: 'it wants a user name', remedy: 'give --etcd-username and --etcd-password' }
  }
  if (!/permission denied|PERMISSION_DENIED/.test(text)) return null
  const who = username === null ? 'without a user' : `for user "${username}"`
  return { ...refused, why: `permission denied ${who}`, remedy: `grant read and write on ${prefix}/` }
}

function tlsFailure(text: string, base: Base): EtcdFailure | null {
  if (!CERTIFICATE.test(text)) return null
  const why = `no TLS connection: ${lastReason(base.why)}`
  const remedy = /bad certificate|certificate required|unknown ca/i.test(text)
    ? 'give a client certificate that etcd trusts with --etcd-certfile and --etcd-keyfile'
    : 'give the CA of its certificate with --etcd-cafile, and an endpoint name that is in the certificate'
  return { kind: 'refused', elsewhere: true, endpoint: base.endpoint, why, remedy }
}

function absence(status: string, text: string, base: Base): Omit<EtcdFailure, 'endpoint'> {
  const away = { kind: 'away', elsewhere: true, remedy: base.remedy } as const
  if (/ECONNREFUSED/.test(text)) return { ...away, why: 'connection refused' }
  if (/ENOTFOUND|EAI_AGAIN|Name resolution failed/.test(text)) {
    return { ...away, why: 'its name cannot be resolved', remedy: 'check --etcd-endpoints and the name service' }
  }
  if (/EHOSTUNREACH|ENETUNREACH/.test(text)) return { ...away, why: 'no route to it' }
  if (status === 'DEADLINE_EXCEEDED') return { ...away, why: 'no answer in time' }
  if (/no leader|request timed out|leader changed/.test(text)) {
    return { ...away, why: 'its cluster has no leader', remedy: 'check that most members of the cluster run' }
  }
  if (/database space exceeded/.test(text)) {
    const remedy = 'compact and defragment it, then etcdctl alarm disarm'
    return { ...away, elsewhere: false, why: 'its database is full', remedy }
  }
  if (/Connection dropped|ECONNRESET|Protocol error|Failed to connect|before secure TLS/i.test(text)) {
    const [other, speaks] = base.endpoint.startsWith('https:') ? ['http', 'does not speak'] : ['https', 'speaks']
    const remedy = `check that etcd runs at ${base.endpoint}; if it ${speaks} TLS, give ${other}:// in --etcd-endpoints`
    return { ...away, why: 'it closed the connection', remedy }
  }
  return { ...away, why: lastReason(base.why) }
}

/** grpc-js puts the cause behind its own words, and a time, which would make every line of the log another one. */
function lastReason(words: string): string {
  const text = words.replace(/ \(\d{4}-\d\d-\d\dT[^)]*\)/g, '')
  // OpenSSL: thread, number, library, function, reason, file, line.
  const tls = /\b[0-9A-F]{8,}:error:[0-9A-F]+:[^:]*:[^:]*:([^:]+):/.exec(text)?.[1]
  if (tls !== undefined) return tls
  return /Last error: (.*?)\.?(?: Resolution note:.*)?$/s.exec(text)?.[1]?.replace(/^Error: /, '') ?? text
}

/** One error for all endpoints that were tried. */
export function storeError(failures: readonly EtcdFailure[], storeName: string, cause: unknown): FlanneletteError {
  const refused = failures.findLast(({ kind }) => kind === 'refused')
  const told = refused ?? failures.at(-1)!
  const all = failures
    .map(({ endpoint, why }) => `${endpoint}: ${why}`)
    .filter((line, at, lines) => lines.indexOf(line) === at)
    .sort() // whoever was asked first: the same trouble is the same line of the log
  if (refused === undefined) {
    const message = `store ${storeName} cannot be reached (${all.join('; ')})`
    return new FlanneletteError('store-unreadable', message, { remedy: told.remedy, retryable: true, cause })
  }
  const message = `store ${storeName} refuses us (${all.join('; ')})`
  return new FlanneletteError('store-refused', message, { remedy: told.remedy, cause })
}
