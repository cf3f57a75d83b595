// The flags that say where etcd is.
import { describe, expect, test } from 'vitest'
import {
  cleanPrefix,
  DEFAULT_ETCD_ENDPOINTS,
  DEFAULT_ETCD_PREFIX,
  etcdOptions,
  parseEndpoints,
} from '../../../src/config/etcd-options.ts'

describe('endpoints', () => {
  test.each([
    [DEFAULT_ETCD_ENDPOINTS, ['http://127.0.0.1:4001', 'http://127.0.0.1:2379']],
    [' https://a.example:2379 ,, https://b.example:2379/', ['https://a.example:2379', 'https://b.example:2379']],
    ['10.0.0.1:2379', ['http://10.0.0.1:2379']],
    ['http://[fd00::1]:2379', ['http://[fd00::1]:2379']],
    ['https://a.example', ['https://a.example:443']],
    ['http://a:1,http://a:1', ['http://a:1']],
  ])('%s', (text, endpoints) => {
    expect(parseEndpoints(text)).toEqual(endpoints)
  })

  test.each(['', ' , ', 'ftp://a:1', 'http://', 'http://a:1/path', 'http://a:99999', 'unix:///run/etcd'])(
    '%j is refused',
    (text) => {
      expect(() => parseEndpoints(text)).toThrow(expect.objectContaining({ code: 'usage' }))
    },
  )

  test('a password in one is refused and not repeated', () => {
    const error = thrownBy(() => parseEndpoints('http://root:planted@a:1'))
    expect(error.code).toBe('usage')
    expect(error.oneLine).not.toContain('planted')
    expect(error.oneLine).toContain('--etcd-password')
  })
})

test.each([
  ['/coreos.com/network', DEFAULT_ETCD_PREFIX],
  ['coreos.com//network/', '/coreos.com/network'],
  ['/', ''],
  ['', ''],
])('prefix %j becomes %j', (text, prefix) => {
  expect(cleanPrefix(text)).toBe(prefix)
})

describe('key and certificate', () => {
  const flags = { etcdEndpoints: 'http://a:1', etcdPrefix: '/x' }

  test('come together or not at all; empty flags count as absent', () => {
    expect(etcdOptions({ ...flags, etcdKeyfile: '', etcdUsername: '' })).toMatchObject({
      keyFile: null,
      username: null,
    })
    expect(etcdOptions({ ...flags, etcdKeyfile: 'k', etcdCertfile: 'c' })).toMatchObject({
      keyFile: 'k',
      certFile: 'c',
    })
    expect(() => etcdOptions({ ...flags, etcdKeyfile: 'k' })).toThrow(/--etcd-keyfile without --etcd-certfile/)
    expect(() => etcdOptions({ ...flags, etcdCertfile: 'c' })).toThrow(/--etcd-certfile without --etcd-keyfile/)
  })
})

function thrownBy(action: () => unknown): { code: string; oneLine: string } {
  try {
    action()
  } catch (error) {
    return error as { code: string; oneLine: string }
  }
  throw new Error('nothing was thrown')
}
