// What etcd's libraries say of a failed call, in words for people.
import { expect, test } from 'vitest'
import { etcdOptions } from '../../../../src/config/etcd-options.ts'
import { failureOf, storeError } from '../../../../src/store/etcd/failure.ts'

const OPTIONS = etcdOptions({ etcdEndpoints: 'https://a:1', etcdPrefix: '/x' })

test('a handshake that fails is told by its reason alone, the same in every process', () => {
  const words = (thread: string) =>
    `14 UNAVAILABLE: No connection established. Last error: ${thread}:error:0A000412:SSL routines:ssl3_read_bytes:sslv3 alert bad certificate:../deps/openssl/openssl/ssl/record/rec_layer_s3.c:1601:SSL alert number 42\n. Resolution note: `
  const failures = ['80ECA251C67F0000', '807CCB82707F0000'].map((thread) =>
    failureOf(new Error(words(thread)), 'https://a:1', OPTIONS),
  )
  expect(failures[0]).toEqual(failures[1])
  expect(storeError(failures, 'etcd', null).oneLine).toBe(
    'store etcd refuses us (https://a:1: no TLS connection: sslv3 alert bad certificate); ' +
      'give a client certificate that etcd trusts with --etcd-certfile and --etcd-keyfile',
  )
})

test('a certificate that is not trusted keeps its words', () => {
  const error = new Error(
    '14 UNAVAILABLE: No connection established. Last error: self-signed certificate. Resolution note: ',
  )
  expect(failureOf(error, 'https://a:1', OPTIONS).why).toBe('no TLS connection: self-signed certificate')
})

test('endpoints that fail are named in one order, whoever was asked first', () => {
  const options = etcdOptions({ etcdEndpoints: 'http://a:1,http://b:2', etcdPrefix: '/x' })
  const failures = ['http://b:2', 'http://a:1'].map((endpoint) =>
    failureOf(new Error('14 UNAVAILABLE: connect ECONNREFUSED'), endpoint, options),
  )
  const message = 'store etcd cannot be reached (http://a:1: connection refused; http://b:2: connection refused)'
  expect(storeError(failures, 'etcd', null).message).toBe(message)
  expect(storeError(failures.toReversed(), 'etcd', null).message).toBe(message)
})
