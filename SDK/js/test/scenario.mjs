/**
 * Plays ../../scenario.json with tidemark.js in Node.
 *
 * node scenario.mjs <settings.json>: `{ "url", "ca"?, "jwtSecretFile", "admin" }`, the last one
 * the gateway's operations listener. Steps of the host, such as a gateway that is killed, are printed as `@name`; the
 * host answers `done`. Exits with 1 at the first state that is not as expected within 60 s.
 */
import { createHmac } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { MemoryStore, NodeTransport, Tidemark, TidemarkError } from '../tidemark.js'
import { play } from './player.mjs'

const settings = JSON.parse(readFileSync(process.argv[2]))
const scenario = JSON.parse(readFileSync(new URL('../../scenario.json', import.meta.url)))
const secret = readFileSync(settings.jwtSecretFile, 'utf8').split('\n')[0]
const options = settings.ca ? { ca: readFileSync(settings.ca) } : {}
// Errors of listeners are reported here.
globalThis.reportError = () => {}

const base64 = (value) => Buffer.from(JSON.stringify(value)).toString('base64url')
const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

const environment = {
  Tidemark, TidemarkError, url: settings.url,
  makeTransport: () => new NodeTransport(settings.url, options),
  makeStore: () => new MemoryStore(),
  async token(claims, seconds = 3600) {
    const now = Math.floor(Date.now() / 1000)
    const body = `${base64({ alg: 'HS256', typ: 'JWT' })}.${base64({ iat: now, exp: now + seconds, ...claims })}`
    return `${body}.${createHmac('sha256', secret).update(body).digest('base64url')}`
  },
  networkIsBack: (tidemark) => tidemark.reconnect(),
  metrics: async () => (await fetch(`${settings.admin}/metrics`)).text(),
  async host(command) {
    if (settings.withoutHost) return
    console.log(`@${command}`)
    const { value } = await input.next()
    if (value !== 'done') throw new Error(`the host answered ${value}`)
  },
}
try {
  console.log(await play(scenario, environment))
  process.exit(0)
} catch (error) {
  console.log(error.message)
  process.exit(1)
}
