/**
 * Marks messages delivered when their push arrives, from a service worker: also while no page of the app is open.
 *
 * A classic script, for `importScripts` in your service worker, or `import` where workers are modules:
 *
 *   self.tidemark = { url: 'https://chat.example.org' }
 *   importScripts('https://chat.example.org/sdk/tidemark-sw.js')
 *
 * Options, all of them optional:
 *   url       address of the gateway; by default the worker's own origin
 *   ticketOf  takes the push's JSON, returns its ticket or undefined; by default its field `ticket`
 *
 * It shows no notification: that is your `push` listener's. A ticket that cannot be sent is kept in IndexedDB, at most
 * 500 of them, and sent with the next push, the next start of the worker, or when the browser says that the network is
 * back. A ticket that the server refuses is dropped: it is not valid any more. Tickets are harmless if they are sent
 * twice.
 */
;(() => {
  const { url = self.location.origin, ticketOf = ({ ticket }) => ticket } = self.tidemark ?? {}
  const keptMax = 500
  /** Milliseconds until a request is given up: browsers end a push's worker after half a minute. */
  const limit = 10_000
  const tag = 'tidemark-tickets'

  let opened
  const database = () =>
    (opened ??= new Promise((resolve, reject) => {
      const request = indexedDB.open('tidemark tickets', 1)
      request.onupgradeneeded = () => request.result.createObjectStore('tickets', { autoIncrement: true })
      request.onsuccess = () => {
        request.result.onclose = () => (opened = undefined)
        resolve(request.result)
      }
      request.onerror = () => reject(request.error)
    }).catch((error) => {
      opened = undefined
      throw error
    }))

  /** Perform `change` on the kept tickets, in one transaction. Resolves to its request's result. */
  async function perform(mode, change) {
    const transaction = (await database()).transaction('tickets', mode)
    const result = change(transaction.objectStore('tickets'))
    return new Promise((resolve, reject) => {
      transaction.oncomplete = () => resolve(result)
      transaction.onabort = transaction.onerror = () => reject(transaction.error)
    })
  }

  /** Keep a ticket. The oldest ones give way. */
  const keep = (ticket) =>
    perform('readwrite', (tickets) => {
      tickets.add(ticket)
      const keys = tickets.getAllKeys()
      keys.onsuccess = () => {
        for (const key of keys.result.slice(0, -keptMax)) tickets.delete(key)
      }
    })

  /** Send tickets in one request. Throws where they have to be sent again. */
  async function post(tickets) {
    const response = await fetch(`${url.replace(/\/+$/, '')}/v1/push/acks`, {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ tickets }),
      credentials: 'omit', redirect: 'error', signal: AbortSignal.timeout(limit),
    })
    const isAgain = response.status === 408 || response.status === 429 || response.status >= 500
    if (isAgain) throw new Error(`the server answered ${response.status}`)
  }

  /** Send all tickets that are kept. */
  async function sendKept() {
    const [keys, tickets] = await perform('readonly', (kept) => [kept.getAllKeys(), kept.getAll()])
    if (tickets.result.length === 0) return
    await post(tickets.result)
    await perform('readwrite', (kept) => keys.result.forEach((key) => kept.delete(key)))
  }

  /** Ask for an event when the network is back, where the browser has that. */
  const wait = () => self.registration.sync?.register(tag).catch(() => {})

  async function acknowledge(ticket) {
    // It is kept first: the browser may end the worker at any time.
    await keep(ticket)
    await sendKept().catch(wait)
  }

  const readTicket = (data) => {
    try {
      return ticketOf(data.json())
    } catch {
      return undefined
    }
  }

  self.addEventListener('push', (event) => {
    const ticket = event.data && readTicket(event.data)
    // A service that has no IndexedDB, as in a private window, sends it at once.
    if (typeof ticket === 'string' && ticket) event.waitUntil(acknowledge(ticket).catch(() => post([ticket])))
  })
  self.addEventListener('activate', (event) => event.waitUntil(sendKept().catch(() => {})))
  self.addEventListener('sync', (event) => {
    // An error makes the browser try again.
    if (event.tag === tag) event.waitUntil(sendKept())
  })
})()
