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
    ['http://[fd00::1]:2379/,[fd00:0:0::2]:2379', ['http://[fd00::1]:2379', 'http://[fd00::2]:2379']],
    ['HTTPS://A.example:02379//', ['https://a.example:2379']],
    ['http://a:80,https://a:443', ['http://a:80', 'https://a:443']],
    ['http://a:1,http://a:1', ['http://a:1']],
  ])('%s', (text, endpoints) => {
    expect(parseEndpoints(text)).toEqual(endpoints)
  })

  const FORM = 'give http://HOST:PORT or https://HOST:PORT'
  test.each<[string, string]>([
    ['foo', 'foo has no port; write for example http://foo:2379'],
    ['http://foo', 'http://foo has no port; write for example http://foo:2379'],
    ['https://foo/', 'https://foo/ has no port; write for example https://foo:2379'],
    ['http://foo:', 'http://foo: has no port; write for example http://foo:2379'],
    ['10.0.0.1', '10.0.0.1 has no port; write for example http://10.0.0.1:2379'],
    ['[fd00::1]', '[fd00::1] has no port; write for example http://[fd00::1]:2379'],
    ['http://a:99999', 'http://a:99999 has no port from 1 to 65535; write for example http://a:2379'],
    ['http://a:0', 'http://a:0 has no port from 1 to 65535; write for example http://a:2379'],
    ['a:etcd', 'a:etcd has no port from 1 to 65535; write for example http://a:2379'],
    ['fd00::1', 'fd00::1 is no endpoint; put an IPv6 address in brackets: http://[ADDRESS]:PORT'],
    [
      'https://fd00::1:2379',
      'https://fd00::1:2379 is no endpoint; put an IPv6 address in brackets: https://[ADDRESS]:PORT',
    ],
    [
      'http://a:1/v3',
      `http://a:1/v3 has more than host and port; ${FORM}, http://a:1; where the keys are is said by --etcd-prefix`,
    ],
    [
      'http://a:1?x=1',
      `http://a:1?x=1 has more than host and port; ${FORM}, http://a:1; where the keys are is said by --etcd-prefix`,
    ],
    ['http//a:1', `http//a:1 has more than host and port; ${FORM}; where the keys are is said by --etcd-prefix`],
    ['http://a:1 http://b:1', 'http://a:1 http://b:1 has a blank in it; separate endpoints by commas'],
    ['ftp://a:1', `ftp://a:1 is no endpoint; ${FORM}`],
    ['unix:///run/etcd', `unix:///run/etcd is no endpoint; ${FORM}`],
    ['http://', `http:// names no host; ${FORM}`],
    [':2379', `:2379 names no host; ${FORM}`],
    ['http://010.0.0.1:2379', `http://010.0.0.1:2379 names no host; ${FORM}`],
    ['http://10.1:2379', `http://10.1:2379 names no host; ${FORM}`],
    ['http://[10.0.0.1]:2379', `http://[10.0.0.1]:2379 names no host; ${FORM}`],
    ['http://a<b:1', `http://a<b:1 names no host; ${FORM}`],
  ])('%s is refused with what to write, also among good ones', (text, sentence) => {
    for (const list of [text, `http://good:1,${text}`, `${text}, http://good:1`]) {
      const { code, oneLine } = thrownBy(() => parseEndpoints(list, 'FLANNELD_ETCD_ENDPOINTS'))
      expect([code, oneLine]).toEqual(['usage', `FLANNELD_ETCD_ENDPOINTS: ${sentence}`])
    }
  })

  test.each(['', ' , '])('%j names no server', (text) => {
    expect(thrownBy(() => parseEndpoints(text)).oneLine).toMatch(/^--etcd-endpoints names no server; give one or more/)
  })

  test.each(['http://root:planted@a:1', 'root:pl/planted@a:1', 'http://b:1,http://root:planted,planted@a:1'])(
    'a password in one is refused and not repeated: %s',
    (text) => {
      const { code, oneLine } = thrownBy(() => parseEndpoints(text))
      expect(code).toBe('usage')
      expect(oneLine).not.toContain('planted')
      expect(oneLine).toMatch(/…@a:1 has a user in it; give --etcd-username and --etcd-password/)
    },
  )
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

test.each([
  [{}, 'http'],
  [{ etcdCafile: 'ca' }, 'https'],
  [{ etcdKeyfile: 'k', etcdCertfile: 'c' }, 'https'],
])('an endpoint without a scheme, with %j, is spoken to by %s, as etcd’s own client does', (files, scheme) => {
  const { endpoints } = etcdOptions({ etcdEndpoints: 'a:1,http://b:2,https://c:3', etcdPrefix: '', ...files })
  expect(endpoints).toEqual([`${scheme}://a:1`, 'http://b:2', 'https://c:3'])
})

function thrownBy(action: () => unknown): { code: string; oneLine: string } {
  try {
    action()
  } catch (error) {
    return error as { code: string; oneLine: string }
  }
  throw new Error('nothing was thrown')
}
