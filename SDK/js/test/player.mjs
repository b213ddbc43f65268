/**
 * Performs the steps of ../../scenario.json with tidemark.js, and compares states. Tests/SwiftScenarioPlayer plays the
 * same file with the Swift client. In a step `as` names the client.
 *
 * The environment says where it runs:
 * - `Tidemark`, `TidemarkError`: of the module
 * - `url`: of the gateway
 * - `makeTransport()`, `makeStore()`: what a client of this place has
 * - `token(claims, seconds)`: a promise of a token
 * - `metrics()`: a promise of the text of the gateway's metrics
 * - `networkIsBack(tidemark)`: says so to a client, as the place does
 * - `host(command)`: has the host do something, such as kill the gateway
 */
/** Longest wait for an expected state, in milliseconds. */
const limit = 60_000

/** An event id of another store: a stream that is resumed with it begins with `stream.reset`. */
const otherStore = '0'.repeat(32)

/** A transport that can be taken off the network. */
class Network {
  #requests = new Set()
  isOffline = false
  offlineSince
  resumesElsewhere = false
  /** Number of event streams that were resumed with an id of another store. */
  resumedElsewhere = 0

  constructor(transport) { this.transport = transport }

  async open(request) {
    if (this.isOffline) throw new Error('offline')
    const headers = { ...request.headers }
    if (this.resumesElsewhere && headers['last-event-id']) {
      headers['last-event-id'] = otherStore + headers['last-event-id'].slice(otherStore.length)
      this.resumesElsewhere = false
      this.resumedElsewhere += 1
    }
    // fetch has no connection that could be closed: each request is cut.
    const cut = new AbortController()
    this.#requests.add(cut)
    request.signal?.addEventListener('abort', () => cut.abort(), { once: true })
    if (request.signal?.aborted) cut.abort()
    const response = await this.transport.open({ ...request, headers, signal: cut.signal })
    return { ...response, chunks: this.#read(response, cut) }
  }

  async *#read(response, cut) {
    try {
      yield* response.chunks
    } finally {
      this.#requests.delete(cut)
    }
  }

  cut() {
    this.isOffline = true
    this.offlineSince = Date.now()
    this.reset()
  }
  connect() { this.isOffline = false }
  reset() {
    for (const cut of this.#requests) cut.abort()
    this.#requests.clear()
    this.transport.reset()
  }
  close() { this.transport.close() }
}

async function textOf(response) {
  let text = ''
  const decoder = new TextDecoder()
  for await (const chunk of response.chunks) text += decoder.decode(chunk, { stream: true })
  return text
}

/** Play the steps; resolves to what to print at the end, and rejects with the step that was not as expected. */
export async function play(scenario, environment) {
  const { Tidemark, TidemarkError, url, token, networkIsBack } = environment

  // The chat backend

  const backend = environment.makeTransport()
  async function server(method, path, body) {
    const headers = { authorization: `Bearer ${await token({ server: true })}`, 'content-type': 'application/json' }
    const response = await backend.open({ method, path, headers, body: body && JSON.stringify(body) })
    const text = await textOf(response)
    if (response.status >= 300) throw new Error(`${method} ${path}: ${response.status} ${text}`)
    return JSON.parse(text)
  }

  /** Registered messages by cid (and thread) and id: `{ cid, thread, id, seq, user }`. */
  const messages = new Map()
  const place = (cid, id) => `${cid} ${id}`

  /** Number of requests that the gateway has answered, by its metrics. */
  async function countRequests(route) {
    const metrics = await environment.metrics()
    const name = `tidemark_gateway_requests_total{route="${route}"`
    const lines = metrics.split('\n').filter((line) => line.startsWith(name))
    return lines.reduce((sum, line) => sum + Number(line.split(' ')[1]), 0)
  }
  const counted = new Map()

  /** The newest message of a channel that was registered. */
  const newestOf = (cid) => [...messages.values()].findLast((message) => message.cid === cid && !message.thread)?.id

  // Clients

  const clients = new Map()
  function makeClient(name, { user, store = environment.makeStore(), storeOf, throws, tokenSeconds }) {
    if (storeOf) store = clients.get(storeOf).store
    const network = new Network(environment.makeTransport())
    const client = { user, network, store, refused: [], tokens: 0, thrown: 0 }
    client.tidemark = new Tidemark({
      url, user, store, transport: network,
      tokenProvider: () => {
        client.tokens += 1
        return token({ user_id: user }, client.tokens === 1 && tokenSeconds ? tokenSeconds : 3600)
      },
    })
    for (const type of throws ? ['change', 'totals', 'online', 'offline'] : []) {
      client.tidemark.on(type, () => {
        client.thrown += 1
        throw new Error('a listener that throws')
      })
    }
    client.tidemark.on('refused', ({ kind, code }) => client.refused.push(`${kind} ${code}`))
    clients.set(name, client)
    return client
  }

  // Steps

  const steps = {
    channel: ({ cid, members, options }) => server('PUT', `/v1/channels/${cid}`, { members, options }),
    async channels({ prefix, count, members }) {
      const cids = Array.from({ length: count }, (_, number) => `${prefix}-${number}`)
      for (let first = 0; first < count; first += 100) {
        const channels = cids.slice(first, first + 100).map((cid) => ({ cid, members }))
        await server('POST', '/v1/channels', { channels })
      }
    },
    async message({ cid, id, user, ...fields }) {
      const { message } = await server('POST', `/v1/channels/${cid}/messages`, { id, user_id: user, ...fields })
      messages.set(place(cid, id), { cid, thread: fields.parent_id, id, seq: message.seq, user })
    },
    deleteMessage: ({ cid, id }) => server('DELETE', `/v1/channels/${cid}/messages/${id}`),
    truncate: ({ cid, before }) => server('POST', `/v1/channels/${cid}/truncate`, { before }),
    members: ({ cid, add, remove }) => server('POST', `/v1/channels/${cid}/members`, { add, remove }),
    deleteChannel: ({ cid }) => server('DELETE', `/v1/channels/${cid}`),

    client: ({ name, ...rest }) => makeClient(name, rest).tidemark.start(),
    /** A client that is not started yet. */
    unstarted: ({ name, ...rest }) => void makeClient(name, rest),
    start: ({ as }) => clients.get(as).tidemark.start(),
    close: ({ as }) => clients.get(as).tidemark.close(),
    open: ({ as, cid, thread }) => clients.get(as).tidemark.open(cid, thread),
    openAll: ({ as, prefix, count }) =>
      clients.get(as).tidemark.openAll(Array.from({ length: count }, (_, number) => `${prefix}-${number}`)),
    show: ({ as, cid, ids, thread }) =>
      clients.get(as).tidemark.show(cid, ids.map((id) => messages.get(place(cid, id))), thread),
    read: ({ as, cid, id, thread }) => clients.get(as).tidemark.markRead(cid, id, thread),
    delivered: ({ as, cid, id, thread }) => clients.get(as).tidemark.markDelivered(cid, id, thread),
    unread: ({ as, cid, id }) => clients.get(as).tidemark.markUnread(cid, id ? { messageId: id } : {}),
    readAll: ({ as }) => clients.get(as).tidemark.markAllRead({ threads: true }),
    acknowledge: ({ as, cid, ids, note }) => clients.get(as).tidemark.acknowledge(cid, ids, note),
    receipts: ({ as, read, delivered }) => clients.get(as).tidemark.setReceipts({ read, delivered }),
    autoRead({ as, cid }) {
      const client = clients.get(as)
      client.stopReading?.()
      client.stopReading = cid && client.tidemark.autoRead(() => ({ cid, messageId: newestOf(cid) }))
    },
    offline: ({ as }) => clients.get(as).network.cut(),
    online({ as }) {
      const { network, tidemark } = clients.get(as)
      network.connect()
      networkIsBack(tidemark)
    },
    /** Until the client has been off the network for some time. */
    async awaitOffline({ as, milliseconds }) {
      const rest = clients.get(as).network.offlineSince + milliseconds - Date.now()
      await steps.pause({ milliseconds: Math.max(0, rest) })
    },
    /** The next event stream is resumed with an id of another store. */
    resumeElsewhere: ({ as }) => void (clients.get(as).network.resumesElsewhere = true),
    /** The process ends with marks in its store, and another one starts with the same store. */
    async restart({ as }) {
      const client = clients.get(as)
      await client.tidemark.close()
      await makeClient(as, client).tidemark.start()
    },
    countFromNow: async ({ route }) => void counted.set(route, await countRequests(route)),
    pause: ({ milliseconds }) => new Promise((resolve) => setTimeout(resolve, milliseconds)),
    host: ({ command }) => environment.host(command),
  }

  /** The current value of each state that a step compares with its `is`. */
  const tidemark = ({ as }) => clients.get(as).tidemark
  const message = ({ cid, id }) => messages.get(place(cid, id))
  const states = {
    status: (of) => tidemark(of).deliveryStatus(message(of)),
    readers: (of) => tidemark(of).readersFor(message(of))?.sort(),
    deliveredTo: (of) => tidemark(of).deliveredFor(message(of))?.sort(),
    deliveredNotRead: (of) => tidemark(of).deliveredNotReadFor(message(of))?.sort(),
    hasRead: (of) => tidemark(of).hasUserRead(message(of), of.user),
    unreadCount: (of) => tidemark(of).countUnread(of.cid, of.thread),
    lastRead: (of) => tidemark(of).lastReadMessageId(of.cid, of.thread) ?? null,
    firstUnread: (of) => tidemark(of).firstUnreadMessageId(of.cid, of.thread) ?? null,
    total: (of) => tidemark(of).totals?.total_unread_count,
    pending: (of) => tidemark(of).pending,
    isOpen: (of) => tidemark(of).readState(of.cid) !== undefined,
    requests: async ({ route }) => (await countRequests(route)) - counted.get(route),
    refused: ({ as }) => clients.get(as).refused,
    hasThrown: ({ as }) => clients.get(as).thrown > 0,
    tokens: ({ as }) => clients.get(as).tokens,
    resumedElsewhere: ({ as }) => clients.get(as).network.resumedElsewhere,
  }

  async function expect(name, { is, ...subject }) {
    const end = Date.now() + limit
    let actual
    do {
      actual = await states[name](subject)
      if (JSON.stringify(actual) === JSON.stringify(is)) return
      await steps.pause({ milliseconds: 20 })
    } while (Date.now() < end)
    throw new Error(`expected ${JSON.stringify(is)}, and it is ${JSON.stringify(actual)}`)
  }

  const compared = [
    'joined_seq', 'last_read_seq', 'last_delivered_seq', 'unread_messages', 'first_unread_message_id', 'unread_epoch',
    'marked_unread',
  ]

  /** The local rows and counts equal the server's. */
  async function compare({ as, cid, thread }) {
    const client = clients.get(as)
    const headers = { authorization: `Bearer ${await token({ user_id: client.user })}` }
    const query = thread ? `?thread_id=${encodeURIComponent(thread)}` : ''
    const end = Date.now() + limit
    let problem
    do {
      const response = await backend.open({ method: 'GET', path: `/v1/channels/${cid}/read-state${query}`, headers })
      const text = await textOf(response)
      const line = ([user, row]) => `${user}: ${JSON.stringify(compared.map((field) => row[field] ?? null))}`
      const stored = JSON.parse(text).read.map(({ user, ...row }) => line([user.id, row])).sort()
      const local = [...(client.tidemark.readState(cid, thread) ?? [])].map(line).sort()
      problem = JSON.stringify(stored) === JSON.stringify(local) ? undefined : `stored ${stored}, local ${local}`
      if (!problem) return
      await steps.pause({ milliseconds: 100 })
    } while (Date.now() < end)
    throw new Error(problem)
  }

  let number = 0
  for (const step of scenario.steps) {
    number += 1
    const [name] = Object.keys(step)
    try {
      if (name === 'compare') await compare(step.compare)
      else if (steps[name]) await steps[name](step[name])
      else if (states[name]) await expect(name, step[name])
      else throw new Error('no such step')
    } catch (error) {
      const code = error instanceof TidemarkError ? error.code : ''
      throw new Error([`step ${number}, ${JSON.stringify(step)}:`, code, error.message].filter(Boolean).join(' '))
    }
  }
  for (const { tidemark } of clients.values()) await tidemark.close()
  backend.close()
  return `${number} steps, all as expected`
}
