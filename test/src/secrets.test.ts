// No secret leaves in a bundle: planted ones in every dress that flags, variables and configs have.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { MASK, maskSecrets, maskWords } from '../../src/secrets.ts'
import { cpuMsOf } from '../support/cpu-time.ts'

const SECRET = 'hunter2'

describe('what is masked', () => {
  test.each([
    ['--etcd-password=hunter2 --iface eth0', `--etcd-password=${MASK} --iface eth0`],
    ['-etcd-password hunter2 -iface eth0', `-etcd-password ${MASK} -iface eth0`],
    ['FLANNELD_ETCD_PASSWORD=hunter2', `FLANNELD_ETCD_PASSWORD=${MASK}`],
    ['Environment="FLANNELD_ETCD_PASSWORD=hunter2 and hunter2"', `Environment="FLANNELD_ETCD_PASSWORD=${MASK}"`],
    ["ExecStart=x '--token=hunter2 hunter2' y", `ExecStart=x '--token=${MASK}' y`],
    ['{"password": "hunter2\\"hunter2", "user": "a"}', `{"password": ${MASK}, "user": "a"}`],
    ['"Config": "{\\"password\\": \\"hunter2 x\\", \\"a\\": 1}"', `"Config": "{\\"password\\": ${MASK}, \\"a\\": 1}"`],
    ['  token: hunter2', `  token: ${MASK}`],
    ['    client-key-data: hunter2==', `    client-key-data: ${MASK}`],
    ['PrivateKey = hunter2=', `PrivateKey = ${MASK}`],
    ['https://root:hunter2@192.0.2.1:2379', `https://root:${MASK}@192.0.2.1:2379`],
    ['https://root:hunter2@hunter2@192.0.2.1:2379', `https://root:${MASK}@192.0.2.1:2379`],
    ['"https://root:hunter2/hunter2@192.0.2.1:2379","a@b"', `"https://root:${MASK}@192.0.2.1:2379","a@b"`],
    ['https://hunter2@192.0.2.1/', `https://${MASK}@192.0.2.1/`],
    ['etcdctl --user root:hunter2 get /', `etcdctl --user root:${MASK} get /`],
    ['Authorization: Bearer hunter2', `Authorization: Bearer ${MASK}`],
    ['jwt eyJhbGciOi.eyJzdWIi.hunter2', `jwt ${MASK}`],
    ['-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\nx', `${MASK}\nx`],
    ['-----BEGIN EC PRIVATE KEY-----\nhunter2', MASK],
    ['password=a,hunter2;hunter2', `password=${MASK}`],
  ])('%j', (text, masked) => {
    expect(maskSecrets(text)).toBe(masked)
  })

  test.each([
    '--etcd-keyfile=/etc/etcd/key.pem --etcd-certfile /etc/etcd/cert.pem --etcd-username root',
    'FLANNEL_SUBNET=10.244.1.1/24',
    '10.244.0.0/16 dev flannel.1 proto 142 scope link src 10.244.1.0',
    '"VtepMAC":"0a:00:00:00:00:02"',
    'https://192.0.2.1:2379,https://192.0.2.2:2379',
  ])('left as it is: %j', (text) => {
    expect(maskSecrets(text)).toBe(text)
  })

  test('words of a command line, whatever their blanks and quotes', () => {
    const words = ['run', '--etcd-password', `a "${SECRET}' b`, `-token=x" ${SECRET}`, '--store', 'etcd']
    expect(maskWords(words)).toBe(`run --etcd-password ${MASK} -token=${MASK} --store etcd`)
  })

  test('no value of a secret flag survives', () => {
    const value = fc.string({ minLength: 1 }).map((noise) => `${noise}${SECRET}${noise}`)
    fc.assert(
      fc.property(value, (secret) => {
        expect(maskWords(['--etcd-password', secret, `FLANNELD_ETCD_PASSWORD=${secret}`])).not.toContain(SECRET)
        expect(maskSecrets(JSON.stringify({ password: secret }))).not.toContain(SECRET)
        expect(maskSecrets(JSON.stringify({ Config: JSON.stringify({ password: secret }) }))).not.toContain(SECRET)
      }),
    )
  })
})

test.each(['a', 'a.', '://', 'x-', 'password', '\\"', 'eyJ', '@'])('a megabyte of %j is masked in no time', (piece) => {
  const text = `{"VtepMAC":"${piece.repeat(1_000_000 / piece.length)}","password":"hunter2"}`
  expect(cpuMsOf(() => expect(maskSecrets(text)).not.toContain('hunter2'))).toBeLessThan(2000)
})

test('a secret longer than any word leaves nothing of itself', () => {
  expect(maskSecrets(`token=eyJ${'a'.repeat(5000)}.b.c end`)).toMatch(
    /^\S*‹\d+ characters left out› end$|^token=‹masked› end$/,
  )
})
