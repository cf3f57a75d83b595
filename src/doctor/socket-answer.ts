// Whether a daemon answers on its local socket: any answer will do.
import { request } from 'node:http'
import { ANSWER_LIMIT_MS } from './node-view.ts'

/** @throws Error when the socket may not be entered (not root) */
export function socketAnswers(socketPath: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const call = request({ socketPath, path: '/' }, (response) => {
      response.resume()
      resolve(true)
    })
    call.setTimeout(ANSWER_LIMIT_MS, () => call.destroy(new Error('no answer')))
    call.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EACCES') reject(error)
      else resolve(false)
    })
    call.end()
  })
}
