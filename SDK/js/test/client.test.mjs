// The client against a transport of answers: what the scenario against a real gateway cannot bring about.
// Run with `node --test SDK/js/test`.

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { MemoryStore, Tidemark, TidemarkError, ackTicket } from '../tidemark.js'

const settled = () => new Promise((resolve) => setTimeout(resolve, 5))

/** Wait until a condition holds. */
async function eventually(what, holds) {
  const end = performance.now() + 10_000
  while (!(await holds())) {
    if (performance.now() > end) assert.fail(`not within 10 s: ${what}`)
    await settled()
  }
}

/** Answers each request with what `answer` returns: `[status, body]`, or a promise of it. `tell` sends an event. */
class FakeTransport {
  requests = []
  /** Whether requests fail as without a network. */
  isOffline = false

  constructor(answer = () => undefined) {
    this.answer = answer
  }

  async open({ method, path, body, signal }) {
    if (this.isOffline) throw new Error('offline')
    const request = { method, path, body: body && JSON.parse(body) }
    this.requests.push(request)
    const own = await this.answer(request)
    if (path.startsWith('/v1/events') && !own) {
      return { status: 200, header: () => null, chunks: this.#stream(signal) }
    }
    const [status, answer] = own ?? FakeTransport.#usual(request)
    const chunks = [new TextEncoder().encode(JSON.stringify(answer))]
    return { status, header: () => null, chunks }
  }

  async *#stream(signal) {
    let text = ': hello\n\n'
    while (!signal.aborted) {
      yield new TextEncoder().encode(text)
      text = await new Promise((resolve) => {
        this.tell = (event) => resolve(`data: ${JSON.stringify(event)}\n\n`)
        signal.addEventListener('abort', () => resolve(''))
      })
    }
  }

  static #usual({ method, path, body }) {
    if (path.endsWith('/unread?limit=1')) return [200, { total_unread_count: 0, unread_channels: 0, unread_threads: 0 }]
    if (method === 'GET' && path.startsWith('/v1/users/')) return [200, { privacy_settings: {} }]
    if (path === '/v1/channels/delivered') {
      return [200, { results: body.latest_delivered_messages.map(() => ({ ok: true })) }]
    }
    if (path.endsWith('/read')) return [200, { read: row({ unread_epoch: body.unread_epoch ?? 0 }) }]
    if (path === '/v1/read-state') return [200, { states: body.cids.map((cid) => ({ cid, read: [row()] })) }]
    return [200, { read: [row()] }]
  }

  count(end) {
    return this.requests.filter(({ path }) => path.endsWith(end)).length
  }

  reset() {}
  close() {}
}

/** Reads slowly, so that marks come while it does. */
class SlowStore extends MemoryStore {
  reads = 0

  async all() {
    const values = await super.all()
    this.reads += 1
    await new Promise((resolve) => setTimeout(resolve, 30))
    return values
  }
}

const row = (fields) => ({
  user: { id: 'alice' }, last_read_seq: 0, last_delivered_seq: 0, unread_messages: 0, unread_epoch: 0, ...fields,
})

/** Run a body with a client, and close it. */
async function withClient(transport, body, options = {}) {
  const client = new Tidemark({
    url: 'http://127.0.0.1', user: 'alice', tokenProvider: () => 'token', store: new MemoryStore(), transport,
    interval: 20, random: () => 0, ...options,
  })
  try {
    await body(client)
  } finally {
    await client.close()
  }
}

test('a read that is made while a mark-unread is sent is of the new epoch', async () => {
  let answer
  const transport = new FakeTransport(({ path }) =>
    path.endsWith('/unread') ? new Promise((resolve) => (answer = resolve)) : undefined)
  await withClient(transport, async (client) => {
    await client.start()
    await client.open('team:a')
    client.markUnread('team:a', { messageId: 'm1' })
    await eventually('the mark-unread is sent', () => answer)
    client.markRead('team:a', 'm2')
    answer([200, { read: row({ unread_epoch: 7 }) }])
    await eventually('the read is sent', () => transport.count('/read') === 1)
    assert.equal(transport.requests.find(({ path }) => path.endsWith('/read')).body.unread_epoch, 7)
  })
})

test('marks count as pending from the call on', async () => {
  const transport = new FakeTransport()
  const store = new SlowStore()
  await withClient(transport, async (client) => {
    await client.start()
    transport.isOffline = true
    for (let number = 1; number <= 30; number++) {
      client.markUnread('team:a', { messageId: `m${number}` })
      for (let wait = 0; wait < 3; wait++) {
        assert.equal(client.pending, number)
        await settled()
      }
    }
  }, { store })
})

test('the queue is bounded, and a mark too many is refused', async () => {
  const transport = new FakeTransport()
  transport.isOffline = true
  await withClient(transport, async (client) => {
    const refused = []
    client.on('refused', (mark) => refused.push(mark))
    for (let number = 0; number <= 10_000; number++) client.markUnread('team:a', { messageId: `m${number}` })
    assert.equal(client.pending, 10_000)
    assert.deepEqual(refused.map(({ id, code }) => [id, code]), [['m10000', 'queue_full']])
  })
})

test('a mark of a place does not wait for one of another place', async () => {
  const transport = new FakeTransport()
  const store = new SlowStore()
  await withClient(transport, async (client) => {
    await client.start()
    client.markRead('team:a', 'm1')
    await eventually('the first read is sent', () => transport.count('team:a/read') === 1)
    client.markRead('team:a', 'm2')
    const before = store.reads
    await eventually('the marks are read from the store', () => store.reads > before)
    client.markRead('team:b', 'm1')
    await eventually('the read of the other place is sent', () => transport.count('team:b/read') === 1)
    assert.equal(transport.count('team:a/read'), 1)
  }, { interval: 60_000, store })
})

test('a clock that is set back does not hold deliveries', async (context) => {
  const transport = new FakeTransport()
  await withClient(transport, async (client) => {
    await client.start()
    client.markDelivered('team:a', 'm1')
    const now = Date.now()
    context.mock.method(Date, 'now', () => now - 3_600_000)
    await eventually('the delivery is sent', () => transport.count('/v1/channels/delivered') === 1)
  })
})

test('channels that cannot be loaded now are loaded later', async () => {
  const transport = new FakeTransport()
  await withClient(transport, async (client) => {
    await client.start()
    transport.isOffline = true
    await client.openAll(['team:a'])
    assert.equal(client.readState('team:a').size, 0)
    transport.isOffline = false
    await eventually('the channel is loaded', () => client.readState('team:a')?.size === 1)
  })
})

test('start throws if the settings are refused for good', async () => {
  const transport = new FakeTransport(({ path }) =>
    path === '/v1/users/alice' ? [403, { code: 'forbidden' }] : undefined)
  await withClient(transport, async (client) => {
    await assert.rejects(client.start(), { code: 'forbidden' })
  })
})

test('statuses that were told after a failed query do not stay ahead of later answers', async () => {
  let fails = true
  const statuses = [{ seq: 1, status: 'read', read_events: true, delivery_events: true }]
  const transport = new FakeTransport(({ path }) => {
    if (!path.endsWith('/receipts/query')) return undefined
    return fails ? [400, { code: 'invalid_field' }] : [200, { statuses }]
  })
  await withClient(transport, async (client) => {
    await client.start()
    const own = { id: 'm1', seq: 1, user: 'alice' }
    await assert.rejects(client.show('team:a', [own]), { code: 'invalid_field' })
    const event = { type: 'message.status', cid: 'team:a', user: { id: 'alice' }, from_seq: 1, to_seq: 1 }
    transport.tell({ ...event, status: 'delivered' })
    await eventually('the status is known', () => client.deliveryStatus({ cid: 'team:a', ...own }) === 'delivered')
    fails = false
    await client.show('team:a', [own])
    assert.equal(client.deliveryStatus({ cid: 'team:a', ...own }), 'read')
  })
})

test('a cid without a type is refused by name', async () => {
  await withClient(new FakeTransport(), async (client) => {
    await client.start()
    await assert.rejects(client.open('team'), { code: 'invalid_field' })
    const refused = new Promise((resolve) => client.on('refused', resolve))
    client.markRead('team', 'm1')
    assert.equal((await refused).code, 'invalid_field')
  })
})

test('a refused token is replaced once, and one that throws is a lost connection', async () => {
  let tokens = 0
  const transport = new FakeTransport(() => (tokens === 1 ? [401, { code: 'token_expired' }] : undefined))
  const tokenProvider = () => `token ${++tokens}`
  await withClient(transport, async (client) => {
    await client.start()
    assert.equal(tokens, 2)
  }, { tokenProvider })
  await withClient(new FakeTransport(), async (client) => {
    await assert.rejects(client.listMembers({ cid: 'team:a', id: 'm1' }, 'readers'), { code: 'connection_lost' })
  }, { tokenProvider: () => { throw new Error('signed out') } })
})

test('a ticket is invalid, or the server is busy', async () => {
  const answers = (result) => new FakeTransport(() => [200, { results: [result] }])
  const acked = (result) => ackTicket('t', { url: 'http://127.0.0.1', transport: answers(result) })
  assert.equal(await acked({ ok: true }), true)
  assert.equal(await acked({ ok: false, code: 'ticket_invalid' }), false)
  await assert.rejects(acked({ ok: false, code: 'store_busy' }), (error) =>
    error instanceof TidemarkError && error.isTemporary && error.code === 'store_busy')
})
