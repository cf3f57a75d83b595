// A pod and its far node in one process, outside the one under test: a datagram every millisecond into the TUN, and how
// they come out on the underlay. Arguments: pod, far pod, far node, port. Ends with its input; prints sent, lost,
// longest gap in ms.
import { createSocket } from 'node:dgram'

const [pod, farPod, farNode, port] = process.argv.slice(2)
const arrivals = createSocket('udp4').bind(Number(port), farNode)
const sender = createSocket('udp4').bind(5001, pod)
let [sent, received, last, longest] = [0, 0, 0, 0]
arrivals.on('message', () => {
  const now = performance.now()
  if (last !== 0) longest = Math.max(longest, now - last)
  last = now
  received++
})
sender.on('listening', () => {
  const timer = setInterval(() => sender.send(String(sent++), 9, farPod), 1)
  process.stdin.resume().on('end', () => {
    clearInterval(timer)
    setTimeout(() => {
      console.log(JSON.stringify({ sent, lost: sent - received, longest }))
      process.exit()
    }, 200)
  })
  console.log('running')
})
