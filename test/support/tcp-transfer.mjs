// Two ends of one TCP transfer of random-looking bytes, as programs for two pods:
//
//   tcp-transfer receive PORT                       prints `listening`, `comes` once a MiB has, then the longest time in
//                                                   which nothing came, in milliseconds, and the digest of what came
//   tcp-transfer send HOST PORT MEBIBYTES SECONDS   prints `connected`, then the digest of what went; takes so many
//                                                   seconds or more, and keeps the last MiB until its input ends
//
// A digest line is `BYTES SHA256`. Plain JavaScript, because pods run it as it is.
import { createCipheriv, createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'

const CHUNK = Buffer.alloc(1 << 20)
const [verb, ...rest] = process.argv.slice(2)

async function receive(port) {
  const server = createServer().listen(port)
  await once(server, 'listening')
  console.log('listening')
  const [socket] = await once(server, 'connection')
  server.close()
  const hash = createHash('sha256')
  let bytes = 0
  let [last, longest] = [performance.now(), 0]
  for await (const chunk of socket) {
    const now = performance.now()
    longest = Math.max(longest, now - last)
    last = now
    hash.update(chunk)
    if (bytes < CHUNK.length && bytes + chunk.length >= CHUNK.length) console.log('comes')
    bytes += chunk.length
  }
  console.log(Math.round(longest))
  console.log(`${bytes} ${hash.digest('hex')}`)
}

async function inputEnd() {
  if (!process.stdin.readableEnded) await once(process.stdin.resume(), 'end')
}

async function send(host, port, mebibytes, seconds) {
  const socket = connect(port, host)
  await once(socket, 'connect')
  console.log('connected')
  // A stream cipher over zeros: cheap, and no two stretches are alike.
  const random = createCipheriv('aes-128-ctr', randomBytes(16), randomBytes(16))
  const hash = createHash('sha256')
  const start = performance.now()
  for (let sent = 0; sent < mebibytes; sent++) {
    if (sent === mebibytes - 1) await inputEnd()
    const chunk = random.update(CHUNK)
    hash.update(chunk)
    if (!socket.write(chunk)) await once(socket, 'drain')
    const early = start + (1000 * seconds * (sent + 1)) / mebibytes - performance.now()
    if (early > 0) await pause(early)
  }
  socket.end()
  await once(socket, 'close')
  console.log(`${mebibytes * CHUNK.length} ${hash.digest('hex')}`)
}

await (verb === 'receive' ? receive(Number(rest[0])) : send(rest[0], ...rest.slice(1).map(Number)))
