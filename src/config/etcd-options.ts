// Where etcd is and how to log in, from flanneld's own flags and defaults.
import { isIP } from 'node:net'
import { FlanneletteError } from '../errors.ts'

export interface EtcdOptions {
  /** `http://host:port` or `https://host:port`, always with the port, tried in turn. */
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
  // As etcd's own client: who gives files for TLS, speaks it.
  const speaksTls = Boolean(flags.etcdKeyfile || flags.etcdCertfile || flags.etcdCafile)
  const options = {
    endpoints: parseEndpoints(flags.etcdEndpoints, sourceOf('etcd-endpoints'), speaksTls ? 'https' : 'http'),
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

/**
 * A comma list; blanks around an endpoint do not count. As with etcd's own client the scheme may be missing, which is then
 * `scheme`, and the port may not: it would be that of a web server.
 * @throws FlanneletteError `usage` that says what to write
 */
export function parseEndpoints(text: string, source = '--etcd-endpoints', scheme: 'http' | 'https' = 'http'): string[] {
  if (text.includes('@')) {
    // What stands before it is not shown: it may be a password, with commas in it.
    const shown = text.slice(text.lastIndexOf('@') + 1)
    throw new FlanneletteError('usage', `${source}: …@${shown} has a user in it`, {
      remedy: 'give --etcd-username and --etcd-password',
    })
  }
  const endpoints = text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '')
    .map((part) => parseEndpoint(part, source, scheme))
  if (endpoints.length > 0) return [...new Set(endpoints)]
  throw new FlanneletteError('usage', `${source} names no server`, {
    remedy: `give one or more, for example ${DEFAULT_ETCD_ENDPOINTS}`,
  })
}

const FORM = 'give http://HOST:PORT or https://HOST:PORT'
/** That of etcd for its clients. */
const USUAL_PORT = 2379

function parseEndpoint(text: string, source: string, usual: string): string {
  const wrong = (what: string, remedy: string) =>
    new FlanneletteError('usage', `${source}: ${text} ${what}`, { remedy })
  const [, given = usual, authority = '', path = ''] = /^(?:([a-z][\w+.-]*):\/\/)?([^/?#]*)\/*([\s\S]*)$/i.exec(text)!
  const scheme = given.toLowerCase()
  if (/\s/.test(text)) throw wrong('has a blank in it', 'separate endpoints by commas')
  if (!/^https?$/.test(scheme)) throw wrong('is no endpoint', FORM)
  if (/^[^[].*:.*:/.test(authority)) {
    throw wrong('is no endpoint', `put an IPv6 address in brackets: ${scheme}://[ADDRESS]:PORT`)
  }
  const [, name = '', port = ''] = /^(\[.*\]|[^:]*)(?::(.*))?$/.exec(authority) ?? []
  const host = hostOf(name)
  if (host === null) throw wrong('names no host', FORM)
  if (path !== '') {
    const remedy = `${FORM}${port === '' ? '' : `, ${scheme}://${authority}`}; where the keys are is said by --etcd-prefix`
    throw wrong('has more than host and port', remedy)
  }
  const example = `write for example ${scheme}://${name}:${USUAL_PORT}`
  if (port === '') throw wrong('has no port', example)
  if (!/^\d{1,5}$/.test(port) || Number(port) < 1 || Number(port) > 65_535) {
    throw wrong('has no port from 1 to 65535', example)
  }
  return `${scheme}://${host}:${Number(port)}`
}

/** As it is looked up; `null` for what is none, and for numbers that would become an address that is not written there. */
function hostOf(name: string): string | null {
  try {
    const { hostname } = new URL(`http://${name}/`)
    return isIP(hostname) === 4 && hostname !== name ? null : hostname
  } catch {
    return null
  }
}

/** Slashes cleaned up as flannel joins paths: one in front, none doubled, none at the end. */
export function cleanPrefix(text: string): string {
  const parts = text.split('/').filter((part) => part !== '' && part !== '.')
  return parts.map((part) => `/${part}`).join('')
}
