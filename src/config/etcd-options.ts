// Where etcd is and how to log in, from flanneld's own flags and defaults.
import { FlanneletteError } from '../errors.ts'

export interface EtcdOptions {
  /** `http://host:port` or `https://host:port`, tried in turn. */
  readonly endpoints: readonly string[]
  /** Begins with a slash and does not end with one; empty for the root. */
  readonly prefix: string
  /** Paths of PEM files; `null` for none. Key and certificate come together. */
  readonly keyFile: string | null
  readonly certFile: string | null
  readonly caFile: string | null
  readonly username: string | null
  /** Never part of a message. */
  readonly password: string | null
}

export const DEFAULT_ETCD_ENDPOINTS = 'http://127.0.0.1:4001,http://127.0.0.1:2379'
export const DEFAULT_ETCD_PREFIX = '/coreos.com/network'

/** The values of the flags as they were given; empty ones count as absent, as with flanneld. */
export interface EtcdFlags {
  readonly etcdEndpoints: string
  readonly etcdPrefix: string
  readonly etcdKeyfile?: string
  readonly etcdCertfile?: string
  readonly etcdCafile?: string
  readonly etcdUsername?: string
  readonly etcdPassword?: string
}

/**
 * `sourceOf` says who set a flag, for complaints: the flag itself or a variable.
 * @throws FlanneletteError `usage` for values that contradict each other or name no server
 */
export function etcdOptions(flags: EtcdFlags, sourceOf = (name: string) => `--${name}`): EtcdOptions {
  const options = {
    endpoints: parseEndpoints(flags.etcdEndpoints, sourceOf('etcd-endpoints')),
    prefix: cleanPrefix(flags.etcdPrefix),
    keyFile: flags.etcdKeyfile || null,
    certFile: flags.etcdCertfile || null,
    caFile: flags.etcdCafile || null,
    username: flags.etcdUsername || null,
    password: flags.etcdPassword || null,
  }
  if ((options.keyFile === null) !== (options.certFile === null)) {
    const missing = options.keyFile === null ? '--etcd-keyfile' : '--etcd-certfile'
    const given = sourceOf(options.keyFile === null ? 'etcd-certfile' : 'etcd-keyfile')
    throw new FlanneletteError('usage', `${given} without ${missing}`, { remedy: 'give both, or neither' })
  }
  return options
}

/** A comma list; blanks around an endpoint do not count, and without a scheme it is plain HTTP. */
export function parseEndpoints(text: string, source = '--etcd-endpoints'): string[] {
  const endpoints = text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '')
    .map((part) => parseEndpoint(part, source))
  if (endpoints.length > 0) return [...new Set(endpoints)]
  throw new FlanneletteError('usage', `${source} names no server`, {
    remedy: `give one or more, for example ${DEFAULT_ETCD_ENDPOINTS}`,
  })
}

function parseEndpoint(text: string, source: string): string {
  const scheme = /^https?:\/\//i.test(text) ? '' : 'http://'
  let url: URL | null = null
  try {
    url = new URL(scheme + text)
  } catch {
    // Refused below, in our words.
  }
  // A user in it is refused without showing what stands there: it may be a password.
  const user = url !== null && (url.username !== '' || url.password !== '')
  if (url === null || user || !/^https?:$/.test(url.protocol) || url.hostname === '' || url.pathname.length > 1) {
    const shown = user ? `${url?.protocol}//…@${url?.host}` : text
    throw new FlanneletteError('usage', `${source}: ${shown} is no endpoint`, {
      remedy: user ? 'give --etcd-username and --etcd-password' : 'give http://HOST:PORT or https://HOST:PORT',
    })
  }
  const port = url.port === '' ? defaultPort(url.protocol) : url.port
  return `${url.protocol}//${url.hostname}:${port}`
}

function defaultPort(protocol: string): string {
  return protocol === 'https:' ? '443' : '80'
}

/** Slashes cleaned up as flannel joins paths: one in front, none doubled, none at the end. */
export function cleanPrefix(text: string): string {
  const parts = text.split('/').filter((part) => part !== '' && part !== '.')
  return parts.map((part) => `/${part}`).join('')
}
