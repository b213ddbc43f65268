/**
 * Tidemark in an app: marks with throttling and an offline queue, live read states, unread counts and ticks.
 *
 * One ES module without dependencies, for browsers and for Node 18 and later. Types are in tidemark.d.ts, the guide is
 * docs/api/sdk-web.md.
 *
 * A *place* is a channel, or the thread of one of its messages. Its key is the cid, with a newline and the parent's id
 * for a thread: ids have no control characters.
 */

/** A refusal of the server, or a lost connection (`status` 0). */
export class TidemarkError extends Error {
  /** @param {{status: number, code: string, detail?: string, retryAfter?: number}} problem */
  constructor({ status, code, detail = '', retryAfter }) {
    super(detail || code)
    this.name = 'TidemarkError'
    /** Status of the response; 0: no response. */
    this.status = status
    /** Stable code of the problem, such as `message_not_found`. */
    this.code = code
    /** Milliseconds after which the request may be repeated. */
    this.retryAfter = retryAfter
  }

  /** Whether the same request may succeed later. With 401 the app has to give another token first. */
  get isTemporary() {
    const { status, code } = this
    return status === 0 || [401, 408, 429].includes(status) || status >= 500 || code === 'message_not_found'
  }
}

const lostConnection = (error) =>
  new TidemarkError({ status: 0, code: 'connection_lost', detail: String(error?.message ?? error) })

// Transports. A transport opens a request: `open({ method, path, headers, body, signal })` resolves to
// `{ status, header(name), chunks }`, where `chunks` is an async iterable of Uint8Array. `reset()` drops connections on
// which nothing arrives, `close()` ends the transport.

/** Requests with `fetch`, as browsers have it. */
export class FetchTransport {
  /** @param {string} url address of the gateway or of the load balancer before it */
  constructor(url) {
    this.url = url.replace(/\/+$/, '')
  }

  async open({ method, path, headers, body, signal }) {
    const response = await fetch(this.url + path, {
      method, headers, body, signal, cache: 'no-store', credentials: 'omit', redirect: 'error',
    })
    return { status: response.status, header: (name) => response.headers.get(name), chunks: readAll(response.body) }
  }

  reset() {}
  close() {}
}

async function* readAll(stream) {
  if (!stream) return
  const reader = stream.getReader()
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      yield value
    }
  } finally {
    reader.cancel().catch(() => {})
  }
}

/** Requests over one HTTP/2 connection of Node, whose `fetch` speaks only HTTP/1.1. */
export class NodeTransport {
  #session
  #isClosed = false

  /**
   * @param {string} url address of the gateway; `http:` is HTTP/2 without TLS
   * @param {object} [options] options of `http2.connect`, such as `ca`
   */
  constructor(url, options = {}) {
    this.url = url
    this.options = options
  }

  async #connect() {
    const http2 = await import('node:http2')
    if (this.#isClosed) throw new Error('the transport is closed')
    if (!this.#session || this.#session.closed || this.#session.destroyed) {
      this.#session = http2.connect(this.url, this.options)
      this.#session.on('error', () => {})
    }
    return this.#session
  }

  async open({ method, path, headers, body, signal }) {
    const session = await this.#connect()
    const stream = session.request({ ':method': method, ':path': path, ...headers }, { endStream: body === undefined })
    const cancel = () => stream.close(8)
    signal?.addEventListener('abort', cancel, { once: true })
    if (signal?.aborted) cancel()
    stream.on('close', () => signal?.removeEventListener('abort', cancel))
    if (body !== undefined) stream.end(body)
    const response = await new Promise((resolve, reject) => {
      stream.once('response', resolve)
      stream.once('error', reject)
      stream.once('close', () => reject(new Error('the connection was lost')))
    })
    stream.on('error', () => {})
    return { status: response[':status'], header: (name) => response[name] ?? null, chunks: stream }
  }

  reset() {
    this.#session?.destroy()
  }

  close() {
    this.#isClosed = true
    this.reset()
  }
}

const isNode = typeof process !== 'undefined' && Boolean(process.versions?.node)
const makeTransport = (url) => (isNode ? new NodeTransport(url) : new FetchTransport(url))

// Stores of the marks that the server has not answered. `all()` resolves to `[key, value]` pairs by rising keys, `put`
// and `delete` resolve when it is done. Values are JSON.

/** Keeps marks in memory: they are lost when the page or process ends. */
export class MemoryStore {
  #values = new Map()

  async all() {
    return structuredClone([...this.#values]).sort(([a], [b]) => (a < b ? -1 : 1))
  }
  async put(key, value) {
    this.#values.set(key, structuredClone(value))
  }
  async delete(key) {
    this.#values.delete(key)
  }
}

/** Keeps marks in IndexedDB. Several tabs may use the same one. */
export class IndexedDBStore {
  #database

  /** @param {string} [name] name of the database */
  constructor(name = 'tidemark') {
    this.name = name
  }

  #open() {
    this.#database ??= new Promise((resolve, reject) => {
      const request = indexedDB.open(this.name, 1)
      request.onupgradeneeded = () => request.result.createObjectStore('marks')
      request.onsuccess = () => {
        request.result.onversionchange = () => request.result.close()
        request.result.onclose = () => (this.#database = undefined)
        resolve(request.result)
      }
      request.onerror = () => reject(request.error)
    }).catch((error) => {
      this.#database = undefined
      throw error
    })
    return this.#database
  }

  async #perform(mode, call) {
    const transaction = (await this.#open()).transaction('marks', mode)
    const result = call(transaction.objectStore('marks'))
    return new Promise((resolve, reject) => {
      transaction.oncomplete = () => resolve(result)
      transaction.onabort = transaction.onerror = () => reject(transaction.error)
    })
  }

  async all() {
    const [keys, values] = await this.#perform('readonly', (marks) => [marks.getAllKeys(), marks.getAll()])
    return keys.result.map((key, index) => [key, values.result[index]])
  }
  async put(key, value) {
    await this.#perform('readwrite', (marks) => void marks.put(value, key))
  }
  async delete(key) {
    await this.#perform('readwrite', (marks) => void marks.delete(key))
  }
}

// Requests

const pathOf = (cid) => {
  const colon = cid.indexOf(':')
  if (colon < 1) throw new TidemarkError({ status: 400, code: 'invalid_field', detail: `cid: ${cid}: give TYPE:ID` })
  return `/v1/channels/${encodeURIComponent(cid.slice(0, colon))}:${encodeURIComponent(cid.slice(colon + 1))}`
}

/** Pauses between attempts: 0.5 s, doubled up to 30 s, each shortened by up to a half. */
class Backoff {
  #failures = 0

  constructor(random) {
    this.random = random
  }
  next(least = 0) {
    const longest = Math.min(30_000, 500 * 2 ** Math.min(this.#failures++, 6))
    return Math.max(least, longest * (0.5 + this.random() / 2))
  }
  reset() {
    this.#failures = 0
  }
}

/** Makes requests with the user's token. */
class Requests {
  /** Milliseconds until a request without an answer fails. */
  static limit = 30_000
  #token
  #closing = new AbortController()

  constructor(transport, tokenProvider) {
    this.transport = transport
    this.tokenProvider = tokenProvider
  }

  /** Fail all requests, also later ones. */
  close() {
    this.#closing.abort()
    this.transport.close()
  }

  /** The app's token; another one if it is the refused one. An app that does not answer is asked again. */
  async #tokenAfter(refused) {
    if (this.#token === undefined || (await this.#token) === refused) {
      let timer
      const token = new Promise((resolve, reject) => {
        timer = setTimeout(() => reject(new Error('tokenProvider gave no token')), Requests.limit)
        Promise.resolve().then(() => this.tokenProvider()).then(resolve, reject)
      }).finally(() => clearTimeout(timer))
      this.#token = token
      token.catch(() => this.#token === token && (this.#token = undefined))
    }
    return this.#token
  }

  /** Open a request. The app is asked for another token once if the server refuses the present one. */
  async open(method, path, { body, headers, signal } = {}) {
    const all = { accept: 'application/json', ...headers }
    if (body !== undefined) all['content-type'] = 'application/json'
    let refused
    for (;;) {
      let response, token
      try {
        token = await this.#tokenAfter(refused)
        this.#closing.signal.throwIfAborted()
        all.authorization = `Bearer ${token}`
        response = await this.transport.open({
          method, path, headers: all, signal, body: body === undefined ? undefined : JSON.stringify(body),
        })
      } catch (error) {
        throw lostConnection(error)
      }
      if (response.status < 300) return response
      const problem = await textOf(response).then(JSON.parse).catch(() => ({}))
      if (response.status === 401 && refused === undefined) {
        refused = token
        continue
      }
      const seconds = Number(response.header('retry-after'))
      throw new TidemarkError({
        status: response.status, code: problem.code ?? `status_${response.status}`, detail: problem.detail,
        retryAfter: seconds > 0 ? seconds * 1000 : undefined,
      })
    }
  }

  async json(method, path, body) {
    const attempt = new AbortController()
    const cancel = () => attempt.abort()
    this.#closing.signal.addEventListener('abort', cancel, { once: true })
    const timer = setTimeout(() => {
      cancel()
      this.transport.reset?.()
    }, Requests.limit)
    try {
      return JSON.parse(await textOf(await this.open(method, path, { body, signal: attempt.signal })))
    } finally {
      clearTimeout(timer)
      this.#closing.signal.removeEventListener('abort', cancel)
    }
  }
}

async function textOf(response) {
  const decoder = new TextDecoder()
  let text = ''
  try {
    for await (const chunk of response.chunks) text += decoder.decode(chunk, { stream: true })
  } catch (error) {
    throw lostConnection(error)
  }
  return text + decoder.decode()
}

// Events

/** Splits a `text/event-stream` into blocks of `{ id?, data? }`. */
class EventParser {
  #decoder = new TextDecoder()
  #line = ''
  #block = {};

  *push(chunk) {
    const lines = (this.#line + this.#decoder.decode(chunk, { stream: true })).split('\n')
    this.#line = lines.pop()
    for (const ended of lines) {
      const line = ended.endsWith('\r') ? ended.slice(0, -1) : ended
      if (line === '') {
        yield this.#block
        this.#block = {}
        continue
      }
      const colon = line.indexOf(':')
      if (colon <= 0) continue
      const [name, value] = [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, '')]
      if (name === 'id') this.#block.id = value
      if (name === 'data') this.#block.data = this.#block.data === undefined ? value : `${this.#block.data}\n${value}`
    }
  }
}

/** The user's event stream, over as many connections as it takes. */
class EventStream {
  /** The server sends something at least every 15 s. */
  static silence = 45_000
  #isStopped = false
  #attempt
  #wake
  #last

  constructor(requests, random, { opened, event, lost }) {
    Object.assign(this, { requests, opened, event, lost })
    this.backoff = new Backoff(random)
  }

  async run() {
    while (!this.#isStopped) {
      this.#attempt = new AbortController()
      let failure
      try {
        await this.#follow(this.#attempt)
      } catch (error) {
        failure = error
      }
      this.#attempt.abort()
      if (this.#isStopped) return
      this.lost(failure)
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, this.backoff.next(failure?.retryAfter))
        this.#wake = () => (clearTimeout(timer), resolve())
      })
    }
  }

  async #follow(attempt) {
    const headers = { accept: 'text/event-stream' }
    if (this.#last) headers['last-event-id'] = this.#last
    let watch
    const heard = () => {
      clearTimeout(watch)
      watch = setTimeout(() => {
        attempt.abort()
        this.requests.transport.reset?.()
      }, EventStream.silence)
    }
    try {
      heard()
      const response = await this.requests.open('GET', '/v1/events?totals=true', { headers, signal: attempt.signal })
      const parser = new EventParser()
      let isOpen = false
      for await (const chunk of response.chunks) {
        heard()
        if (!isOpen) {
          isOpen = true
          this.backoff.reset()
          this.opened(this.#last !== undefined)
        }
        for (const { id, data } of parser.push(chunk)) {
          if (data) this.event(JSON.parse(data))
          if (id) this.#last = id
        }
      }
      throw lostConnection('the event stream has ended')
    } finally {
      clearTimeout(watch)
    }
  }

  /** Connect now, if it is not connected. */
  hurry() {
    this.backoff.reset()
    this.#wake?.()
  }

  stop() {
    this.#isStopped = true
    this.#attempt?.abort()
    this.#wake?.()
  }
}

// The read model

const keyOf = (cid, thread) => (thread ? `${cid}\n${thread}` : cid)

/** What has to be queried after an event. */
const OWN_ROW = 1
const ALL_ROWS = 2

/** The rows of a place, kept up to date by events. */
class ReadState {
  /** Known messages that are kept. */
  static messagesMax = 1_000
  /** Events that wait for a query; after more of them the rows are queried again. */
  static waitingMax = 1_000
  /** After a query, events of messages that it had already counted may still arrive. */
  static overlap = 5_000

  constructor(cid, thread, user) {
    Object.assign(this, { cid, thread, user })
    /** Rows by user. Positions are sequence numbers. */
    this.rows = new Map()
    /** Whether all members' rows are here. */
    this.isComplete = false
    /** Number of the newest message that an event has told. */
    this.told = 0
    this.queriedAt = 0
    /** Known messages by id: `{ id, seq, user, silent }`. */
    this.messages = new Map()
    /** Statuses of own messages by number, as the server has told them. */
    this.statuses = new Map()
    /** Which kinds of receipts the channel shows (R8), as the server has told. */
    this.shown = { read: true, delivered: true }
    /** Numbers whose status was told while statuses were queried, and the number of these queries. */
    this.freshStatuses = new Set()
    this.statusQueries = 0
    /** Number of queries of the rows that are under way, and the events that came meanwhile. */
    this.queries = 0
    this.waiting = []
  }

  get key() {
    return keyOf(this.cid, this.thread)
  }

  get own() {
    return this.rows.get(this.user)
  }

  /** Take the rows of a query. */
  takeRows(rows, isAll) {
    if (isAll) this.rows.clear()
    for (const { user, ...row } of rows) this.rows.set(user.id, row)
    this.isComplete ||= isAll
    this.queriedAt = Date.now()
  }

  know(message) {
    if (!(message.seq > 0)) return
    this.messages.delete(message.id)
    this.messages.set(message.id, message)
    if (this.messages.size <= ReadState.messagesMax) return
    const [[id, { seq }]] = this.messages
    this.messages.delete(id)
    this.statuses.delete(seq)
  }

  seqOf(id) {
    if (id === undefined) return undefined
    const message = this.messages.get(id)
    if (message) return message.seq
    for (const row of this.rows.values()) {
      if (row.last_read_message_id === id) return row.last_read_seq
      if (row.last_delivered_message_id === id) return row.last_delivered_seq
    }
    return undefined
  }

  /** The newest known message. */
  get newest() {
    let newest
    for (const message of this.messages.values()) if (!(newest?.seq > message.seq)) newest = message
    return newest
  }

  #raise(user, kind, seq, id, at) {
    const row = this.rows.get(user)
    // A row that is not loaded, or a new participant of the thread.
    if (!row) return this.isComplete ? ALL_ROWS : 0
    if (seq > row[`last_${kind}_seq`]) {
      row[`last_${kind}_seq`] = seq
      row[`last_${kind}_message_id`] = id
      row[kind === 'read' ? 'last_read' : 'last_delivered_at'] = at
    }
    // What was read is shown as delivered (R3).
    return kind === 'read' ? this.#raise(user, 'delivered', seq, id, at) : 0
  }

  /**
   * Apply an event.
   *
   * @returns what has to be queried, since the event does not tell it
   */
  apply(event) {
    const user = event.user?.id
    const { last_read_seq: read, last_read_message_id: readID, created_at: at } = event
    switch (event.type) {
      case 'message.read':
        return this.#raise(user, 'read', read, readID, at)
      case 'message.delivered':
        return this.#raise(
          user, 'delivered', event.last_delivered_seq, event.last_delivered_message_id, event.last_delivered_at ?? at,
        )
      case 'read_state.changed': {
        const known = this.rows.get(user)
        if (!known && (this.thread || !this.isComplete)) return this.isComplete ? ALL_ROWS : 0
        const { type, cid, channel_type, channel_id, created_at, thread_id, user: _, ...row } = event
        this.rows.set(user, { joined_seq: known?.joined_seq ?? 0, ...row })
        return 0
      }
      case 'message.new':
        return this.#registered(event, user)
      case 'message.deleted': {
        const message = this.messages.get(event.message_id)
        this.messages.delete(event.message_id)
        this.statuses.delete(event.seq)
        return message && (message.user === this.user || message.silent) ? 0 : OWN_ROW
      }
      case 'message.status':
        if (user !== this.user) return 0
        for (const seq of this.statuses.keys()) {
          if (seq < event.from_seq || seq > event.to_seq) continue
          this.statuses.set(seq, event.status)
          if (this.statusQueries > 0) this.freshStatuses.add(seq)
        }
        return 0
      case 'member.added': {
        if (this.thread) return 0
        this.rows.set(user, {
          joined_seq: event.joined_seq, last_read: at, last_read_seq: read, last_read_message_id: readID,
          last_delivered_at: at, last_delivered_seq: read, last_delivered_message_id: readID,
        })
        return user === this.user ? OWN_ROW : 0
      }
      case 'member.removed':
        this.rows.delete(user)
        return 0
      case 'channel.truncated':
        if (this.thread) return ALL_ROWS
        for (const [id, { seq }] of this.messages) if (seq <= event.seq) this.messages.delete(id)
        for (const seq of this.statuses.keys()) if (seq <= event.seq) this.statuses.delete(seq)
        return OWN_ROW
      case 'channel.updated': {
        const { read_events: read, delivery_events: delivered } = event.channel.options
        const isSame = read === this.shown.read && delivered === this.shown.delivered
        this.shown = { read, delivered }
        // What rows and statuses show depends on it.
        return isSame ? 0 : ALL_ROWS
      }
      case 'notification.mark_read':
      case 'notification.mark_unread':
        return this.#ownMoved(event)
      default:
        return 0
    }
  }

  #registered(event, user) {
    const { id, seq, silent } = event.message
    const isRepeated = seq <= this.told
    const isNext = seq === this.told + 1 && Date.now() - this.queriedAt > ReadState.overlap
    this.told = Math.max(this.told, seq)
    this.know({ id, seq, silent, user })
    const { read, delivered } = event.moves_position
    let query = 0
    if (user && read) query |= this.#raise(user, 'read', seq, id, event.created_at)
    if (user && delivered) query |= this.#raise(user, 'delivered', seq, id, event.created_at)
    if (user === this.user && !this.statuses.has(seq)) this.statuses.set(seq, 'sent')
    const own = this.own
    if (!own || isRepeated) return query
    if (user === this.user && read) this.clearUnread()
    // Mentions are not told. Without a gap, and without one, the count is exact.
    else if (!silent && user !== this.user && own.unread_messages !== undefined) {
      own.first_unread_message_id ??= id
      own.unread_messages += 1
    }
    return query | (isNext && (read || silent) ? 0 : OWN_ROW)
  }

  clearUnread() {
    const { own } = this
    Object.assign(own, { unread_messages: 0, unread_mentions: 0, marked_unread: false })
    delete own.first_unread_message_id
  }

  #ownMoved(event) {
    const { own } = this
    if (!own) return 0
    own.unread_messages = event.unread_messages
    own.unread_epoch = event.unread_epoch
    own.marked_unread = event.marked_unread
    if (event.type === 'notification.mark_unread') own.first_unread_message_id = event.first_unread_message_id
    else if (event.unread_messages === 0) this.clearUnread()
    // Positions, times and mentions are not told, or only by name.
    return OWN_ROW
  }

  /** Members who count for a message: those who joined before it, without its sender. */
  users(message, holds) {
    const users = []
    for (const [user, row] of this.rows) {
      const isRead = row.last_read_seq >= message.seq
      const isExpected = (row.joined_seq ?? 0) < message.seq || (this.thread && isRead)
      if (user === message.user || !isExpected) continue
      if (holds(isRead, isRead || row.last_delivered_seq >= message.seq)) users.push(user)
    }
    return users
  }
}

// Marks that the server has not answered yet

/** Codes of entries that may succeed later. */
const RETRIED = new Set([
  'store_unavailable', 'store_busy', 'outcome_unknown', 'internal_error', 'clock_jump', 'data_directory_lost',
])

/** The refusal of one entry of a request. */
const refusal = (mark, code) => {
  const status = RETRIED.has(code) ? 503 : code.endsWith('_not_found') ? 404 : 400
  return { mark, error: new TidemarkError({ status, code }) }
}

/** The newest key, so that keys rise within a page also while the clock does not. */
let newestKey = 0
const makeKey = (random) => {
  newestKey = Math.max(newestKey + 1, Date.now() * 1000)
  return `${String(newestKey).padStart(18, '0')}-${Math.floor(random() * 2 ** 32).toString(36)}`
}

const isPosition = ({ kind }) => kind === 'read' || kind === 'delivered'

/**
 * Marks in the order in which they were made. They are in the store from the call on, so they survive the page, and
 * several tabs share them. One request is under way at a time.
 */
class Outbox {
  /** Marks that wait, at the most. */
  static marksMax = 10_000
  /** Attempts after which a message that the server does not know is given up. */
  static unknownMax = 6
  /** Keys in the store, and those of marks that are being put into it. */
  #keys = new Set()
  #adding = new Set()
  #added = Promise.resolve()
  #sentAt = new Map()
  #unknown = new Map()
  #timer
  #running
  /** Whether the last request has failed: nothing is sent before its pause is over. */
  #isFailing = false
  #isStarted = false
  #isClosed = false

  constructor({ store, lock, interval, random, seqOf, mayDeliver, send, refused }) {
    Object.assign(this, { store, lock, interval, random, seqOf, mayDeliver, send, refused })
    this.backoff = new Backoff(random)
  }

  get pending() {
    return this.#keys.size + this.#adding.size
  }

  start() {
    this.#isStarted = true
    this.flush()
  }

  add(mark) {
    if (this.pending >= Outbox.marksMax) {
      return this.refused(mark, new TidemarkError({ status: 0, code: 'queue_full' }))
    }
    const key = makeKey(this.random)
    this.#adding.add(key)
    const value = { ...mark, at: Date.now() }
    this.#added = this.#added
      .then(() => this.store.put(key, value))
      .then(
        () => this.#keys.add(key),
        (error) => this.refused(mark, error),
      )
      .finally(() => this.#adding.delete(key))
    this.flush()
  }

  /** The marks of now that were made after this one, while marks are being sent. */
  async after({ key }) {
    await this.#added
    return (await this.store.all()).filter(([other]) => other > key).map(([other, value]) => ({ ...value, key: other }))
  }

  /** Change a mark that waits, while marks are being sent. */
  async change({ key, ...value }, changes) {
    await this.store.put(key, { ...value, ...changes })
  }

  /** Send now what has failed before. */
  hurry() {
    this.backoff.reset()
    this.flush()
  }

  /** Send what is due, now or as soon as it may be. */
  flush(after = 0) {
    if (!this.#isStarted || this.#isClosed) return
    if (this.#running) return void (this.#running = 'again')
    clearTimeout(this.#timer)
    if (after > 0) return void (this.#timer = setTimeout(() => this.flush(), after))
    this.#running = 'once'
    this.#run().then((next) => {
      // A mark that came meanwhile may be due although others are not.
      const isAgain = this.#running === 'again' && !this.#isFailing
      this.#running = undefined
      if (isAgain) this.flush()
      else if (next !== undefined) this.flush(Math.max(1, next))
    })
  }

  /** @returns milliseconds after which more is due, or may be tried again; undefined: nothing is left */
  async #run() {
    for (;;) {
      let next
      this.#isFailing = false
      try {
        await this.#added
        next = await this.lock(() => this.#sendNext())
      } catch {
        // The store fails: try again later.
        this.#isFailing = true
        return this.backoff.next()
      }
      if (this.#isClosed || next !== 0) return next
    }
  }

  /** @returns 0 after a request that was answered */
  async #sendNext() {
    if (this.#isClosed) return undefined
    const known = [...this.#keys]
    const marks = await this.#compacted()
    // Those that came meanwhile may be among them or not.
    for (const key of known) this.#keys.delete(key)
    for (const { key } of marks) this.#keys.add(key)
    const due = marks.map((mark, index) => this.#dueIn(mark, marks.slice(index + 1)))
    const first = due.findIndex((time) => time <= 0)
    if (first < 0) return due.length > 0 ? Math.min(...due) : undefined
    let batch = [marks[first]]
    if (batch[0].kind === 'delivered') {
      batch = marks.filter(({ kind }, index) => kind === 'delivered' && due[index] <= 0).slice(0, 100)
    }
    let failed
    try {
      failed = (await this.send(batch)) ?? []
    } catch (error) {
      failed = batch.map((mark) => ({ mark, error }))
    }
    const now = performance.now()
    for (const { kind, place } of batch) if (kind === 'read') this.#sentAt.set(place, now)
    if (this.#sentAt.size > Outbox.marksMax) {
      for (const [place, at] of this.#sentAt) if (now - at >= this.interval) this.#sentAt.delete(place)
    }
    const again = failed.filter(({ mark, error }) => this.#isRetried(mark, error))
    for (const { key } of batch) {
      if (again.some(({ mark }) => mark.key === key)) continue
      await this.store.delete(key)
      this.#keys.delete(key)
      this.#unknown.delete(key)
    }
    for (const { mark, error } of failed) {
      if (!this.#isClosed && !again.some((other) => other.mark === mark)) this.refused(mark, error)
    }
    if (again.length > 0) {
      this.#isFailing = true
      return this.backoff.next(again[0].error.retryAfter)
    }
    this.backoff.reset()
    return 0
  }

  #isRetried({ key }, error) {
    if (error.code !== 'message_not_found') return Boolean(error.isTemporary) || !(error instanceof TidemarkError)
    const count = (this.#unknown.get(key) ?? 0) + 1
    this.#unknown.set(key, count)
    return count < Outbox.unknownMax
  }

  /** Milliseconds until a mark may be sent. One that a later mark of its place waits for is not held back. */
  #dueIn(mark, later) {
    const isAwaited = later.some(({ kind, place }) => kind === 'readAll' || (kind === 'unread' && place === mark.place))
    if (mark.kind === 'delivered') {
      if (!this.mayDeliver()) return this.interval
      const now = Date.now()
      // A clock that was set back must not hold a mark.
      return isAwaited || mark.at > now ? 0 : mark.at + this.interval - now
    }
    const sentAt = mark.kind === 'read' && !isAwaited ? this.#sentAt.get(mark.place) : undefined
    return sentAt === undefined ? 0 : sentAt + this.interval - performance.now()
  }

  /** All marks, without those that another one makes needless. */
  async #compacted() {
    const marks = []
    for (const [key, value] of await this.store.all()) {
      if (!value || typeof value !== 'object') {
        await this.store.delete(key)
        continue
      }
      const mark = { ...value, key }
      const needless = this.#needless(marks, mark)
      for (const other of needless) {
        await this.store.delete(other.key)
        if (other !== mark) marks.splice(marks.indexOf(other), 1)
      }
      if (!needless.includes(mark)) marks.push(mark)
    }
    return marks
  }

  /** Positions of the same place that are covered by another one, with no mark-unread between. */
  #needless(marks, mark) {
    const needless = []
    for (let index = marks.length - 1; index >= 0 && isPosition(mark); index--) {
      const older = marks[index]
      if (older.kind === 'readAll' || (older.kind === 'unread' && older.place === mark.place)) break
      if (older.place !== mark.place || !isPosition(older)) continue
      if (this.#covers(older, mark)) return [mark]
      if (this.#covers(mark, older) || this.#areUnknownReads(older, mark)) needless.push(older)
    }
    return needless
  }

  #covers(mark, other) {
    if (mark.kind === 'delivered' && other.kind === 'read') return false
    if (mark.id === undefined || mark.id === other.id) return true
    const [number, otherNumber] = [this.seqOf(mark), this.seqOf(other)]
    return otherNumber !== undefined && number >= otherNumber
  }

  /** Of two messages of unknown numbers the later read is that of the newer one. */
  #areUnknownReads(older, newer) {
    if (older.kind !== 'read' || newer.kind !== 'read' || older.id === undefined) return false
    return this.seqOf(older) === undefined && this.seqOf(newer) === undefined
  }

  /** Stop sending. Resolves when everything is in the store. */
  async close() {
    this.#isClosed = true
    clearTimeout(this.#timer)
    await this.#added
  }
}

/** Locks of stores that several clients of a process share. */
const held = new WeakMap()

/** Perform `body` while no other client of the same store does. */
function withLock(store, body) {
  if (store instanceof IndexedDBStore && typeof navigator !== 'undefined' && navigator.locks) {
    return navigator.locks.request(`tidemark ${store.name}`, body)
  }
  const result = (held.get(store) ?? Promise.resolve()).then(body)
  held.set(store, result.catch(() => {}))
  return result
}

// The client

const report = (error) =>
  typeof globalThis.reportError === 'function' ? globalThis.reportError(error) : console.error(error)

/** A user's Tidemark. */
export class Tidemark {
  #requests
  #outbox
  #stream
  #random
  #listeners = new Map()
  #states = new Map()
  /** Places that the app has opened, with whether it wants all rows. */
  #wanted = new Map()
  #stale = new Map()
  #staleTimer
  #refreshing = false
  /** Whether another refresh follows the one that is under way at once: the stream was opened again. */
  #isRefreshAwaited = false
  #needsBasics = true
  #networkReturned = () => this.reconnect()
  #backoff
  #unreadByHand = new Set()
  /** What was unread when a place was opened, or marked unread since; undefined before its own row is known. */
  #opened = new Map()
  #ownEpochs = new Map()
  /** The checks of automatic reads, each with what stops it. */
  #automatic = new Map()
  #started
  #finishStart
  #failStart
  #isClosed = false
  #settings

  /**
   * @param {object} options
   * @param {string} options.url address of the gateway
   * @param {string} options.user the user's id
   * @param {() => string | Promise<string>} options.tokenProvider returns a token of the user; asked again after a 401
   * @param {object} [options.store] keeps unanswered marks; by default IndexedDB, or memory where there is none
   * @param {object} [options.transport] by default `fetch` in browsers and `node:http2` in Node
   * @param {number} [options.interval] milliseconds between two reads of a place
   * @param {() => number} [options.random] numbers from 0 to 1 for pauses
   */
  constructor({ url, user, tokenProvider, store, transport, interval = 1000, random = Math.random }) {
    this.user = user
    this.interval = interval
    this.#random = random
    this.#backoff = new Backoff(random)
    this.#requests = new Requests(transport ?? makeTransport(url), tokenProvider)
    store ??= typeof indexedDB === 'undefined' ? new MemoryStore() : new IndexedDBStore(`tidemark ${url} ${user}`)
    this.#outbox = new Outbox({
      store, interval, random,
      lock: (body) => withLock(store, body),
      seqOf: ({ place, id, seq }) => seq ?? this.#states.get(place)?.seqOf(id),
      mayDeliver: () => this.#settings !== undefined,
      send: (marks) => this.#send(marks),
      refused: (mark, error) => this.#refused(mark, error),
    })
    /** Totals over all channels; undefined before the first are known. */
    this.totals = undefined
  }

  // Listeners

  /**
   * Call `listener` with each `change` (`{ cid, thread }`), `totals`, `refused` mark, `receipt` (an event
   * `message.receipt`: an own message was acknowledged, or has expired), and `online` or `offline`.
   *
   * @returns a function that removes it
   */
  on(type, listener) {
    if (!this.#listeners.has(type)) this.#listeners.set(type, new Set())
    this.#listeners.get(type).add(listener)
    return () => this.#listeners.get(type).delete(listener)
  }

  /** The app's errors are its own: they stop nothing here. */
  #emit(type, value) {
    for (const listener of [...(this.#listeners.get(type) ?? [])]) {
      try {
        listener(value)
      } catch (error) {
        report(error)
      }
    }
  }

  #changed({ cid, thread }) {
    this.#emit('change', { cid, thread })
  }

  // Lifecycle

  /**
   * Begin to follow events and to send marks. Resolves when the stream is open and totals and settings are known, or
   * the client is closed. Throws if the server refuses one of them for good; lost connections are tried again.
   */
  start() {
    this.#started ??= new Promise((resolve, reject) => {
      this.#finishStart = resolve
      this.#failStart = reject
      this.#stream = new EventStream(this.#requests, this.#random, {
        opened: (isResumed) => {
          this.#emit('online')
          this.#needsBasics = true
          if (!isResumed) this.#reloadAll()
          this.#outbox.flush()
          this.#refreshSoon(0)
        },
        event: (event) => this.#event(event),
        lost: (error) => {
          this.#emit('offline', error)
          if (error instanceof TidemarkError && !error.isTemporary) {
            this.#stream.stop()
            reject(error)
          }
        },
      })
      this.#stream.run()
      this.#outbox.start()
      globalThis.addEventListener?.('online', this.#networkReturned)
    })
    return this.#started
  }

  /**
   * Connect and send now, not after the present pause, which is up to 30 s. Call it when the network is back; in
   * browsers the `online` event does it.
   */
  reconnect() {
    this.#stream?.hurry()
    this.#outbox.hurry()
  }

  /** Stop following events. Unanswered marks stay in the store. */
  async close() {
    this.#isClosed = true
    globalThis.removeEventListener?.('online', this.#networkReturned)
    this.#stream?.stop()
    clearTimeout(this.#staleTimer)
    for (const stop of [...this.#automatic.values()]) stop()
    await this.#outbox.close()
    this.#requests.close()
    this.#finishStart?.()
  }

  /** Number of marks that the server has not answered yet. */
  get pending() {
    return this.#outbox.pending
  }

  // Queries

  /**
   * Load a place, and keep it up to date from now on. The person looks at it, so automatic reads go on after a
   * mark-unread.
   */
  async open(cid, thread) {
    this.#unreadByHand.delete(keyOf(cid, thread))
    this.#opened.set(keyOf(cid, thread), undefined)
    await this.#ensure(cid, thread)
    this.unreadWhenOpened(cid, thread)
  }

  /** Load the own row and up to 99 other members' rows of many channels; later if there is no connection. */
  async openAll(cids) {
    for (const cid of cids) if (!this.#wanted.has(cid)) this.#wanted.set(cid, false)
    for (let first = 0; first < cids.length; first += 100) {
      const part = cids.slice(first, first + 100)
      await this.#loadFirst(part).catch((error) => {
        if (!error.isTemporary) throw error
        for (const cid of part) this.#needs(this.#state(cid), ALL_ROWS)
      })
    }
  }

  /** Forget a place that is not on the screen. */
  forget(cid, thread) {
    const key = keyOf(cid, thread)
    this.#wanted.delete(key)
    this.#states.delete(key)
    this.#opened.delete(key)
  }

  async #ensure(cid, thread) {
    const key = keyOf(cid, thread)
    this.#wanted.set(key, true)
    const state = this.#state(cid, thread)
    if (!state.isComplete) {
      await this.#load(state).catch((error) => {
        this.#missed(state, error)
        if (!error.isTemporary) throw error
      })
    }
    return state
  }

  /** The state of a place, made if need be. */
  #state(cid, thread) {
    const key = keyOf(cid, thread)
    if (!this.#states.has(key)) this.#states.set(key, new ReadState(cid, thread, this.user))
    return this.#states.get(key)
  }

  async #querying(states, query) {
    for (const state of states) state.queries += 1
    try {
      await query()
    } finally {
      for (const state of states) {
        if (--state.queries > 0) continue
        const events = state.waiting
        state.waiting = []
        for (const event of events) this.#apply(state, event)
        this.#changed(state)
      }
      this.#readAutomatically()
    }
  }

  #page(state, query) {
    const thread = state.thread ? `&thread_id=${encodeURIComponent(state.thread)}` : ''
    return this.#requests.json('GET', `${pathOf(state.cid)}/read-state?${query}${thread}`)
  }

  /** All rows, then the statuses of own messages. */
  async #load(state) {
    await this.#querying([state], async () => {
      const rows = []
      let cursor
      do {
        const page = await this.#page(state, cursor ? `cursor=${encodeURIComponent(cursor)}` : 'limit=100')
        rows.push(...page.read)
        cursor = page.next
      } while (cursor)
      state.takeRows(rows, true)
    })
    await this.#loadStatuses(state)
  }

  /** The own row is on the first page. */
  async #loadOwn(state) {
    await this.#querying([state], async () => {
      const { read } = await this.#page(state, 'limit=1')
      state.takeRows(read.filter(({ user }) => user.id === this.user), false)
    })
  }

  async #loadFirst(cids) {
    const states = cids.map((cid) => this.#state(cid))
    await this.#querying(states, async () => {
      const { states: answers } = await this.#requests.json('POST', '/v1/read-state', { cids })
      answers.forEach((answer, index) => {
        if (answer.read) states[index].takeRows(answer.read, false)
        else this.#missed(states[index], refusal(undefined, answer.code).error)
      })
    })
  }

  async #loadStatuses(state) {
    const ids = [...state.messages.values()].filter((message) => message.user === this.user).map(({ id }) => id)
    if (ids.length === 0) return
    state.statusQueries += 1
    try {
      for (let first = 0; first < ids.length; first += 100) {
        const body = { message_ids: ids.slice(first, first + 100) }
        const { statuses } = await this.#requests.json('POST', `${pathOf(state.cid)}/receipts/query`, body)
        for (const { seq, status, read_events: read, delivery_events: delivered } of statuses) {
          if (!status) continue
          state.shown = { read, delivered }
          if (!state.freshStatuses.has(seq)) state.statuses.set(seq, status)
        }
      }
    } finally {
      if (--state.statusQueries === 0) state.freshStatuses.clear()
      this.#changed(state)
    }
  }

  /** Tell of messages that are on the screen, `{ id, seq, user, silent? }`: statuses of own ones are then known. */
  async show(cid, messages, thread) {
    const state = await this.#ensure(cid, thread)
    for (const message of messages) {
      state.know({ silent: false, ...message })
      // Events tell the statuses of the numbers that are here.
      if (message.user === this.user && !state.statuses.has(message.seq)) state.statuses.set(message.seq, undefined)
    }
    await this.#loadStatuses(state)
  }

  /** Totals and settings, which are also other devices'. */
  async #loadBasics() {
    const path = `/v1/users/${encodeURIComponent(this.user)}`
    this.#takeSettings(await this.#requests.json('GET', path))
    this.#takeTotals(await this.#requests.json('GET', `${path}/unread?limit=1`))
    this.#finishStart?.()
    this.#outbox.flush()
  }

  /** A state could not be loaded: it is dropped if there is no such channel, else it is loaded later. */
  #missed(state, error) {
    if (error.status !== 404) return this.#needs(state, ALL_ROWS)
    this.#states.delete(state.key)
    this.#changed(state)
  }

  #takeTotals({ total_unread_count, unread_channels, unread_threads, unread_mentions }) {
    this.totals = { total_unread_count, unread_channels, unread_threads, unread_mentions }
    this.#emit('totals', this.totals)
  }

  #takeSettings(answer) {
    const settings = (answer.user ?? answer).privacy_settings
    this.#settings = { delivered: settings?.delivery_receipts?.enabled !== false }
  }

  // What has to be queried, at most once in `interval`

  #needs(state, query) {
    if (query) this.#stale.set(state, (this.#stale.get(state) ?? 0) | query)
    if (query) this.#refreshSoon(this.interval)
  }

  #reloadAll() {
    for (const [key, isAll] of this.#wanted) {
      const [cid, thread] = key.split('\n')
      this.#stale.set(this.#state(cid, thread), isAll ? ALL_ROWS : OWN_ROW)
    }
    this.#refreshSoon(0)
  }

  #refreshSoon(after) {
    if (this.#isClosed || !this.#stream) return
    if (this.#refreshing) return void (this.#isRefreshAwaited ||= after === 0)
    if (this.#staleTimer !== undefined && after > 0) return
    clearTimeout(this.#staleTimer)
    this.#staleTimer = setTimeout(() => this.#refresh(), after)
  }

  async #refresh() {
    this.#staleTimer = undefined
    this.#refreshing = true
    this.#isRefreshAwaited = false
    const stale = [...this.#stale].filter(([state]) => this.#states.get(state.key) === state)
    this.#stale.clear()
    let failure
    const attempt = async (states, load) => {
      if (failure) return states.forEach((state) => this.#stale.set(state, ALL_ROWS))
      try {
        await load()
      } catch (error) {
        if (error.status === 404 && states.length === 1) return this.#missed(states[0], error)
        if (error.isTemporary) failure = error
        states.forEach((state) => error.isTemporary && this.#stale.set(state, ALL_ROWS))
      }
    }
    if (this.#needsBasics) {
      // A new connection within the attempt needs them again.
      this.#needsBasics = false
      await attempt([], () => this.#loadBasics().catch((error) => {
        this.#needsBasics = true
        if (!error.isTemporary) this.#failStart(error)
        throw error
      }))
    }
    for (const [state, query] of stale) {
      if (!this.#wanted.get(state.key)) continue
      await attempt([state], () => (query & ALL_ROWS ? this.#load(state) : this.#loadOwn(state)))
    }
    const others = stale.map(([state]) => state).filter((state) => !this.#wanted.get(state.key))
    for (let first = 0; first < others.length; first += 100) {
      const states = others.slice(first, first + 100)
      await attempt(states, () => this.#loadFirst(states.map(({ cid }) => cid)))
    }
    this.#refreshing = false
    if (failure) return this.#refreshSoon(this.#backoff.next(failure.retryAfter))
    this.#backoff.reset()
    if (this.#stale.size > 0 || this.#isRefreshAwaited) this.#refreshSoon(this.#isRefreshAwaited ? 0 : this.interval)
  }

  // Events

  #event(event) {
    const { type, cid } = event
    if (type === 'stream.reset') {
      this.#needsBasics = true
      return this.#reloadAll()
    }
    if (type === 'notification.totals') return this.#takeTotals(event)
    if (type === 'message.receipt') return this.#emit('receipt', event)
    const isOwn = event.user?.id === this.user
    if (type === 'channel.deleted' || (isOwn && type === 'member.removed')) return this.#left(cid, type)
    const thread = event.thread_id ?? event.message?.parent_id
    if (type === 'notification.mark_unread') {
      const key = keyOf(cid, thread)
      // The answer of the own mark has told this.
      if (this.#ownEpochs.get(key) !== event.unread_epoch) this.#unreadByHand.add(key)
    }
    if (isOwn && type === 'member.added' && this.#wanted.has(cid) && !this.#states.has(cid)) {
      return this.#needs(this.#state(cid), ALL_ROWS)
    }
    if (type === 'notification.mark_read' && thread) {
      // The counts are the channel's.
      const state = this.#states.get(keyOf(cid, thread))
      if (state) this.#needs(state, OWN_ROW)
      return this.#deliver(this.#states.get(cid), event)
    }
    this.#deliver(this.#states.get(keyOf(cid, thread)), event)
    this.#toThreads(event)
  }

  #deliver(state, event) {
    if (!state) return
    if (state.queries > 0 && state.waiting.length < ReadState.waitingMax) return void state.waiting.push(event)
    if (state.queries > 0) return this.#needs(state, ALL_ROWS)
    this.#apply(state, event)
    this.#changed(state)
    if (event.type === 'message.new') this.#readAutomatically()
  }

  #apply(state, event) {
    this.#needs(state, state.apply(event))
  }

  /** Some of what happens to a channel happens to its threads. */
  #toThreads(event) {
    const isApplied = ['member.removed', 'channel.updated'].includes(event.type)
    if (!isApplied && !['channel.truncated', 'message.deleted'].includes(event.type)) return
    for (const state of this.#states.values()) {
      if (state.cid !== event.cid || !state.thread) continue
      if (isApplied) this.#deliver(state, event)
      else this.#needs(state, ALL_ROWS)
    }
  }

  /** The channel is gone, for the user at least. Another one may have the name by now. */
  #left(cid, type) {
    for (const state of [...this.#states.values()].filter((state) => state.cid === cid)) {
      this.#states.delete(state.key)
      this.#changed(state)
    }
    if (type === 'channel.deleted' && this.#wanted.has(cid)) this.#needs(this.#state(cid), ALL_ROWS)
  }

  // Answers from memory

  #stateOf({ cid, thread }) {
    return this.#states.get(keyOf(cid, thread))
  }

  /** The rows of a place by user; undefined: it is not loaded. */
  readState(cid, thread) {
    return this.#states.get(keyOf(cid, thread))?.rows
  }

  /** Number of unread messages; undefined: it is not known. */
  countUnread(cid, thread) {
    return this.#states.get(keyOf(cid, thread))?.own?.unread_messages
  }

  lastReadMessageId(cid, thread) {
    return this.#states.get(keyOf(cid, thread))?.own?.last_read_message_id
  }

  firstUnreadMessageId(cid, thread) {
    return this.#states.get(keyOf(cid, thread))?.own?.first_unread_message_id
  }

  /**
   * What was unread when the place was opened, `{ messageId?, count }`, for a divider that stays while it is read. A
   * mark-unread since then replaces it. Undefined: the place is not open, or not loaded.
   */
  unreadWhenOpened(cid, thread) {
    const key = keyOf(cid, thread)
    const own = this.#states.get(key)?.own
    if (!own || !this.#opened.has(key)) return undefined
    const { first_unread_message_id: messageId, unread_messages: count, unread_epoch: epoch } = own
    const known = this.#opened.get(key)
    // Only a mark-unread raises the epoch (R4).
    if (!known || (epoch !== known.epoch && messageId !== undefined)) this.#opened.set(key, { messageId, count, epoch })
    return this.#opened.get(key)
  }

  /** Users who have read a message `{ cid, thread?, seq, user }`; none while the place is not loaded. */
  readersFor(message) {
    return this.#stateOf(message)?.users(message, (isRead) => isRead) ?? []
  }

  /** Users who have it delivered, readers included. */
  deliveredFor(message) {
    return this.#stateOf(message)?.users(message, (_, isDelivered) => isDelivered) ?? []
  }

  deliveredNotReadFor(message) {
    return this.#stateOf(message)?.users(message, (isRead, isDelivered) => isDelivered && !isRead) ?? []
  }

  hasUserRead(message, user) {
    return this.#stateOf(message)?.rows.get(user)?.last_read_seq >= message.seq
  }

  /** `pending`, `sent`, `delivered`, `read` or `failed`, for an own message. */
  deliveryStatus(message) {
    if (message.failed) return 'failed'
    if (message.seq === undefined) return 'pending'
    const known = this.#stateOf(message)?.statuses.get(message.seq)
    if (known) return known
    const own = { ...message, user: this.user }
    if (this.readersFor(own).length > 0) return 'read'
    return this.deliveredFor(own).length > 0 ? 'delivered' : 'sent'
  }

  /** Which kinds of receipts a place shows (R8), `{ read, delivered }`: both while no status has told. */
  receiptsShown(cid, thread) {
    return this.#states.get(keyOf(cid, thread))?.shown ?? { read: true, delivered: true }
  }

  /**
   * One page of a message's members with their times, from the server.
   *
   * @param {{cid: string, id: string}} message
   * @param {'readers' | 'delivered' | 'unread' | 'acknowledged' | 'unacknowledged'} list
   * @param {{cursor?: string, limit?: number, order?: 'joined' | 'time' | 'time_desc'}} [page] `cursor` is the `next`
   *   of the page before; `limit` is 1 to 100
   * @returns {Promise<{members: object[], total?: number, next?: string}>} `total` is on the first page
   */
  listMembers({ cid, id }, list, page = {}) {
    const query = new URLSearchParams(Object.entries(page).filter(([, value]) => value !== undefined))
    const path = `${pathOf(cid)}/messages/${encodeURIComponent(id)}/${list}`
    return this.#requests.json('GET', String(query) ? `${path}?${query}` : path)
  }

  // Marks

  /**
   * Mark a place read up to a message, or up to the newest one that is known here: at once, then at most once in
   * `interval`, with the furthest position.
   */
  markRead(cid, messageId, thread) {
    const place = keyOf(cid, thread)
    const state = this.#states.get(place)
    const newest = state?.newest
    const id = messageId ?? newest?.id
    const seq = state?.seqOf(id)
    this.#outbox.add({ kind: 'read', place, cid, thread, id, seq, epoch: state?.own?.unread_epoch })
    if (!state?.own || (id !== undefined && !(state.told > 0 && seq >= state.told))) return
    state.clearUnread()
    this.#changed(state)
  }

  /** Mark a message delivered, with others of the same second. A read of it or a later one makes that needless. */
  markDelivered(cid, messageId, thread) {
    if (this.#settings?.delivered === false) return
    const place = keyOf(cid, thread)
    const seq = this.#states.get(place)?.seqOf(messageId)
    this.#outbox.add({ kind: 'delivered', place, cid, thread, id: messageId, seq })
  }

  /**
   * Mark unread from a message (`{ messageId }`), from a time (`{ timestamp }`), or the whole channel (`{}`). Automatic
   * reads of the place stop until it is opened again.
   */
  markUnread(cid, { messageId, timestamp, thread } = {}) {
    const place = keyOf(cid, thread)
    this.#unreadByHand.add(place)
    this.#ownEpochs.delete(place)
    const epoch = this.#states.get(place)?.own?.unread_epoch
    this.#outbox.add({ kind: 'unread', place, cid, thread, id: messageId, timestamp, epoch })
  }

  /** Mark all channels read, and all threads if asked. */
  markAllRead({ threads = false } = {}) {
    this.#outbox.add({ kind: 'readAll', threads })
  }

  /** Acknowledge messages that ask for it. */
  acknowledge(cid, messageIds, note) {
    for (let first = 0; first < messageIds.length; first += 100) {
      this.#outbox.add({ kind: 'acknowledge', cid, ids: messageIds.slice(first, first + 100), note })
    }
  }

  /** Show or hide the own receipts: `{ read, delivered }`. What is left out stays. */
  async setReceipts({ read, delivered }) {
    const settings = {}
    if (read !== undefined) settings.read_receipts = { enabled: read }
    if (delivered !== undefined) settings.delivery_receipts = { enabled: delivered }
    const path = `/v1/users/${encodeURIComponent(this.user)}`
    this.#takeSettings(await this.#requests.json('PUT', path, { privacy_settings: settings }))
  }

  #refused({ kind, cid, thread, id, ids, timestamp }, error) {
    const state = this.#states.get(keyOf(cid, thread))
    if (state) this.#needs(state, OWN_ROW)
    this.#emit('refused', { kind, cid, thread, id, ids, timestamp, code: error.code, error })
  }

  /**
   * Send marks of one request.
   *
   * @returns the refused ones
   */
  async #send(marks) {
    const [mark] = marks
    const { cid, thread, id, epoch } = mark
    const post = (path, body) => this.#requests.json('POST', path, body)
    switch (mark.kind) {
      case 'read':
        this.#takeOwn(mark, await post(`${pathOf(cid)}/read`, {
          message_id: id, thread_id: thread, unread_epoch: epoch,
        }))
        return []
      case 'unread': {
        const answer = await post(`${pathOf(cid)}/unread`, {
          message_id: id, message_timestamp: mark.timestamp, thread_id: thread, unread_epoch: epoch,
        })
        this.#takeOwn(mark, answer)
        this.#ownEpochs.set(mark.place, answer.read.unread_epoch)
        // Reads that were made after it know of it.
        for (const later of await this.#outbox.after(mark)) {
          if (later.kind !== 'read' || later.place !== mark.place) continue
          await this.#outbox.change(later, { epoch: answer.read.unread_epoch })
        }
        return []
      }
      case 'delivered': {
        if (!this.#settings.delivered) return []
        const latest_delivered_messages = marks.map(({ cid, id, thread }) => ({ cid, id, parent_id: thread }))
        const { results } = await post('/v1/channels/delivered', { latest_delivered_messages })
        return results.flatMap(({ ok, code }, index) => (ok ? [] : [refusal(marks[index], code)]))
      }
      case 'readAll':
        await post('/v1/channels/read', { all: true, ...(mark.threads && { threads: true }) })
        return []
      case 'acknowledge': {
        const { errors } = await post(`${pathOf(cid)}/receipts`, { message_ids: mark.ids, note: mark.note })
        const again = []
        for (const { message_id, code } of errors) {
          const { error } = refusal(mark, code)
          if (error.isTemporary) again.push({ message_id, error })
          else this.#refused({ ...mark, ids: [message_id] }, error)
        }
        if (again.length === 0) return []
        // The others are answered.
        await this.#outbox.change(mark, { ids: again.map(({ message_id }) => message_id) })
        return [{ mark, error: again[0].error }]
      }
      default:
        return []
    }
  }

  #takeOwn({ place }, { read }) {
    const state = this.#states.get(place)
    if (!state) return
    const { user, ...row } = read
    state.rows.set(user.id, row)
    state.queriedAt = Date.now()
    // Messages that came meanwhile may be in the counts or not.
    this.#needs(state, OWN_ROW)
    this.#changed(state)
  }

  // Automatic reads

  /**
   * Read what is on the screen while the page is visible. `policy()` returns the newest message on the screen,
   * `{ cid, thread?, messageId }`, or undefined where none should be read, such as on an older page. It is asked each
   * second, and when a message arrives. A place that was marked unread is not read before it is opened again.
   *
   * @returns a function that stops it
   */
  autoRead(policy) {
    const isVisible = () => typeof document === 'undefined' || document.visibilityState === 'visible'
    let last
    const check = () => {
      let shown
      try {
        shown = isVisible() ? policy() : undefined
      } catch (error) {
        report(error)
      }
      if (!shown?.messageId) return
      const place = keyOf(shown.cid, shown.thread)
      const state = this.#states.get(place)
      const own = state?.own
      const seq = state?.seqOf(shown.messageId)
      const isRead = own && own.last_read_seq >= seq && !own.marked_unread && !(own.unread_messages > 0)
      const name = `${place}\n${shown.messageId}`
      if (this.#unreadByHand.has(place)) return void (last = undefined)
      if (isRead || name === last) return
      last = name
      this.markRead(shown.cid, shown.messageId, shown.thread)
    }
    const stop = () => {
      clearInterval(timer)
      this.#automatic.delete(check)
      if (typeof document !== 'undefined') document.removeEventListener('visibilitychange', check)
    }
    const timer = setInterval(check, this.interval)
    this.#automatic.set(check, stop)
    if (typeof document !== 'undefined') document.addEventListener('visibilitychange', check)
    check()
    return stop
  }

  #readAutomatically() {
    for (const check of [...this.#automatic.keys()]) check()
  }
}

/**
 * Mark the message of a push notification delivered, without a login. For service workers and notification extensions.
 *
 * @param {string} ticket from the push
 * @param {{ url: string, transport?: object }} options address of the gateway
 * @returns {Promise<boolean>} false: the ticket is not valid any more
 * @throws {TidemarkError} the server is busy or was not reached: try again
 */
export async function ackTicket(ticket, { url, transport }) {
  const used = transport ?? makeTransport(url)
  try {
    const response = await used.open({
      method: 'POST', path: '/v1/push/acks', headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ tickets: [ticket] }),
    })
    const text = await textOf(response)
    if (response.status >= 300) throw new TidemarkError({ status: response.status, code: `status_${response.status}` })
    const { ok, code } = JSON.parse(text).results[0]
    if (!ok && RETRIED.has(code)) throw new TidemarkError({ status: 503, code })
    return ok
  } finally {
    if (!transport) used.close()
  }
}
