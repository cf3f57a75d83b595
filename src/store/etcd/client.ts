// One client of npm's etcd3 for one endpoint. Its own fault handling is switched off: which endpoint is asked, for how
// long, and when again, is the connection's business. Only here are etcd3's types known.
import { Etcd3, type IKeyValue, type IOptions, type IRangeRequest, type ITxnRequest, type IWatchResponse } from 'etcd3'
import type { EtcdOptions } from '../../config/etcd-options.ts'
import type { Change, Condition, KeyRange, KeyValue, RangeRequest, WatchMessage } from './calls.ts'
import { readTlsMaterial } from './credentials.ts'

/** Milliseconds that one attempt at one endpoint may take. */
const ATTEMPT_MS = 4000

/** Runs a call and nothing around it. */
const PLAIN = { execute: <T>(call: (context: object) => T) => Promise.resolve().then(() => call({})) }

type Interceptor = NonNullable<Extract<IOptions['defaultCallOptions'], { deadline?: unknown }>['interceptors']>[number]

/** Marks every call so that a member that has lost its cluster refuses it in place of keeping it waiting. */
const withLeader: Interceptor = (options, nextCall) => {
  const call = nextCall(options)
  const start = call.start.bind(call)
  call.start = (metadata, listener) => {
    const marked = metadata.clone()
    marked.set('hasleader', 'true')
    start(marked, listener)
  }
  return call as ReturnType<Interceptor>
}

let generation = 0

/**
 * A client with one connection of its own: gRPC shares connections between clients whose options are the same, also one
 * that was given up because nothing came through it.
 * @throws FlanneletteError `usage` when a file of the TLS side cannot be read
 */
export function newClient(endpoint: string, options: EtcdOptions, withAuth: boolean): Etcd3 {
  const { username, password } = options
  const policy = PLAIN as unknown as NonNullable<NonNullable<IOptions['faultHandling']>['global']>
  return new Etcd3({
    hosts: endpoint,
    ...(endpoint.startsWith('https:') ? { credentials: tls(options) } : {}),
    ...(withAuth && username !== null ? { auth: { username, password: password ?? '' } } : {}),
    faultHandling: { host: () => policy, global: policy },
    // A stream has no end of its own: its watcher looks after it.
    defaultCallOptions: ({ isStream }) => ({
      interceptors: [withLeader],
      ...(isStream ? {} : { deadline: Date.now() + ATTEMPT_MS }),
    }),
    grpcOptions: {
      'grpc.max_receive_message_length': -1,
      'grpc.keepalive_time_ms': 10_000,
      'grpc.keepalive_timeout_ms': 5000,
      'grpc.primary_user_agent': `flannelette/${generation++}`,
      'grpc.enable_retries': 0,
      'grpc.enable_http_proxy': 0,
    },
  })
}

function tls(options: EtcdOptions): NonNullable<IOptions['credentials']> {
  // gRPC names an IP address as the server to speak to, of which Node warns on stderr, in the midst of the log.
  Object.assign(process, { noDeprecation: true })
  // `null` roots are gRPC's word for its own; etcd3's types do not say so.
  return readTlsMaterial(options) as NonNullable<IOptions['credentials']>
}

/** Keys are bytes: one character each, so that whatever stands in the database survives the way here and back. */
const bytesOf = (key: string): Buffer => Buffer.from(key, 'latin1')

const rangeOf = ({ from, to }: KeyRange) => ({
  key: bytesOf(from),
  ...(to === null ? {} : { range_end: bytesOf(to) }),
})

/** etcd.proto `RangeRequest`. */
export function rangeRequest(request: RangeRequest): IRangeRequest {
  return {
    ...rangeOf(request),
    ...(request.limit === undefined ? {} : { limit: request.limit }),
    ...(request.revision === undefined ? {} : { revision: request.revision }),
    ...(request.minModRevision === undefined ? {} : { min_mod_revision: request.minModRevision }),
  }
}

/** etcd.proto `WatchCreateRequest`: `fromRevision` is the first that is told. */
export function watchRequest(range: KeyRange, fromRevision: number) {
  return { create_request: { ...rangeOf(range), start_revision: fromRevision, progress_notify: true } }
}

/** etcd.proto `TxnRequest`: all of it happens at one revision, or the keys in `readOtherwise` are read instead. */
export function transactionOf(change: Change): ITxnRequest {
  const puts = (change.puts ?? []).map(({ key, value, leaseId }) => ({
    request_put: { key: bytesOf(key), value: Buffer.from(value), ...(leaseId === null ? {} : { lease: leaseId }) },
  }))
  const deletes = (change.deletes ?? []).map((key) => ({ request_delete_range: { key: bytesOf(key) } }))
  const read = change.readAfter === undefined ? [] : [{ request_range: rangeRequest(change.readAfter) }]
  return {
    compare: change.when.map(comparison),
    success: [...puts, ...deletes, ...read],
    failure: [{ request_range: rangeRequest(change.readOtherwise) }],
  }
}

/** Numbers of rpc.proto: result EQUAL; target VERSION and MOD. */
function comparison(condition: Condition) {
  const common = { ...rangeOf(condition), result: 0 }
  if ('version' in condition) return { ...common, target: 0, version: condition.version }
  return { ...common, target: 2, mod_revision: condition.modRevision }
}

/** etcd.proto `KeyValue`. Revisions are numbers: they stay below 2^53. A lease of 0 is none. */
export function keyValueOf(pair: IKeyValue): KeyValue {
  return {
    key: pair.key.toString('latin1'),
    value: pair.value.toString('utf8'),
    createRevision: Number(pair.create_revision),
    modRevision: Number(pair.mod_revision),
    leaseId: pair.lease === '0' ? null : pair.lease,
  }
}

/** etcd.proto `WatchResponse`. */
export function watchMessageOf(response: IWatchResponse): WatchMessage {
  return {
    revision: Number(response.header.revision),
    created: response.created,
    canceled: response.canceled,
    reason: response.cancel_reason,
    compactRevision: Number(response.compact_revision),
    events: response.events.map((event) => ({
      type: String(event.type).toUpperCase() === 'DELETE' ? 'delete' : 'put',
      pair: keyValueOf(event.kv),
    })),
  }
}
