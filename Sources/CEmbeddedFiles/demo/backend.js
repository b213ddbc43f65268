/**
 * The chat backend of the demo. Tidemark carries no texts: a backend registers each message and passes texts on. This
 * one lives in the page, and shares its group with other windows of the same browser.
 */
import { words } from '/demo/words.js'

/** Requests to the gateway at a time. */
const atOnce = 20

export class Backend {
  /** The group: `{ cid, size, rule, messages }`, where a message is `{ id, seq, user, text, parent?, receipt? }`. */
  group
  #windows = new BroadcastChannel('tidemark-demo')
  #listeners = new Set()

  constructor(transport, token) {
    Object.assign(this, { transport, token })
    this.#windows.onmessage = ({ data }) => this.#heard(data)
  }

  /** Call with each new group (undefined) or message. */
  on(listener) {
    this.#listeners.add(listener)
  }

  #tell(message) {
    for (const listener of this.#listeners) listener(message)
  }

  /** Join the group of another window, or make one. */
  async start(size, rule) {
    this.#windows.postMessage({ kind: 'hello' })
    await new Promise((resolve) => setTimeout(resolve, 300))
    if (!this.group) await this.makeGroup(size, rule)
  }

  #heard({ kind, group, message }) {
    if (kind === 'hello' && this.group) this.#windows.postMessage({ kind: 'group', group: this.group })
    if (kind === 'group' && group.cid !== this.group?.cid) {
      this.group = group
      this.#tell()
    }
    if (kind === 'message') this.#take(message)
  }

  #take(message) {
    if (message.cid !== this.group?.cid || this.group.messages.some(({ id }) => id === message.id)) return
    this.group.messages.push(message)
    this.#tell(message)
  }

  /** Make a group of Alice, Bob, Carol and guests. */
  async makeGroup(size, rule) {
    const cid = `messaging:demo-${crypto.randomUUID().slice(0, 8)}`
    const group = { cid, size, rule, messages: [] }
    const guests = Array.from({ length: size - 3 }, (_, index) => `guest-${index + 4}`)
    const members = [...Object.keys(words.people), ...guests]
    await this.call('PUT', `/v1/channels/${cid}`, { members, options: { status_rule: rule } })
    this.group = group
    this.#windows.postMessage({ kind: 'group', group })
    this.#tell()
  }

  /** Register a message, and pass it on. A message that is sent again is the same. */
  async send({ id, user, text, parent, receipt }) {
    const { cid } = this.group
    const fields = { id, user_id: user, ...(parent && { parent_id: parent }), ...(receipt && { receipt }) }
    const { message } = await this.call('POST', `/v1/channels/${cid}/messages`, fields)
    const registered = { cid, id, user, text, parent, receipt, seq: message.seq }
    this.#windows.postMessage({ kind: 'message', message: registered })
    this.#take(registered)
    return registered
  }

  /** The ticket that goes with a push of a message to a user. */
  async ticket({ cid, id }, user) {
    const { tickets } = await this.call('POST', '/v1/push/tickets', {
      tickets: [{ cid, message_id: id, user_id: user, device: 'demo' }],
    })
    return tickets[0]
  }

  /** Some guests who have not read the newest message read it. */
  async crowdReads(count) {
    const { cid, messages } = this.group
    const newest = messages.findLast(({ parent }) => !parent)
    if (!newest) return
    const { members } = await this.call(
      'GET', `/v1/channels/${cid}/messages/${newest.id}/unread?limit=100`, undefined,
    )
    const guests = members.map(({ user }) => user.id).filter((id) => !(id in words.people)).slice(0, count)
    for (let first = 0; first < guests.length; first += atOnce) {
      await Promise.all(guests.slice(first, first + atOnce).map((guest) =>
        this.call('POST', `/v1/channels/${cid}/read?user_id=${guest}`, { message_id: newest.id })))
    }
    if (guests.length > 0 && guests.length < count) await this.crowdReads(count - guests.length)
  }

  async call(method, path, body) {
    const headers = { authorization: `Bearer ${this.token}`, 'content-type': 'application/json' }
    const response = await this.transport.open({ method, path, headers, body: body && JSON.stringify(body) })
    const decoder = new TextDecoder()
    let text = ''
    for await (const chunk of response.chunks) text += decoder.decode(chunk, { stream: true })
    const answer = JSON.parse(text)
    if (response.status >= 300) throw new Error(answer.code)
    return answer
  }
}
