// Runs programs in the guest for the test outside: one TCP connection is one program. The first line that comes in is
// the program's words as JSON; then each piece of its output goes back as a line `{"stdout":…}` or `{"stderr":…}`, and
// its end as `{"exitCode":…}`. A connection that ends takes its program with it. Plain JavaScript, because the guest
// runs it as it is.
//
//   guest-agent ADDRESS
import { spawn } from 'node:child_process'
import { createServer } from 'node:net'
import { createInterface } from 'node:readline'

export const PORT = 7100

createServer((socket) => {
  socket.on('error', () => {})
  const say = (message) => socket.write(`${JSON.stringify(message)}\n`)
  createInterface({ input: socket }).once('line', (line) => {
    const [program, ...args] = JSON.parse(line)
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] })
    socket.on('close', () => child.kill('SIGKILL'))
    for (const name of ['stdout', 'stderr']) {
      child[name].setEncoding('utf8').on('data', (text) => say({ [name]: text }))
    }
    child.on('error', (error) => socket.end(`${JSON.stringify({ stderr: error.message, exitCode: 127 })}\n`))
    child.on('close', (code) => socket.end(`${JSON.stringify({ exitCode: code ?? 128 })}\n`))
  })
}).listen(PORT, process.argv[2])
