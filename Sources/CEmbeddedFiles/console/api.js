/** A request that the gateway refused, with the code of its problem document. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `HTTP ${status}`)
    this.status = status
    this.code = problem.code ?? ''
  }
}

async function answerOf(response) {
  if (response.ok) return response
  throw new Refused(response.status, await response.json().catch(() => ({})))
}

/** Path pieces, percent-encoded: path`/channels/${cid}`. */
export function path(pieces, ...values) {
  return String.raw({ raw: pieces }, ...values.map((value) => encodeURIComponent(value)))
}

/** Get the JSON of an API path. The session's cookie goes along by itself. */
export async function get(path, options = {}) {
  return (await answerOf(await fetch(`/console/v1${path}`, options))).json()
}

/** Change something, where the gateway allows it. */
export async function put(path, body) {
  const headers = { 'content-type': 'application/json' }
  const request = { method: 'PUT', headers, body: JSON.stringify(body) }
  return (await answerOf(await fetch(`/console/v1${path}`, request))).json()
}

/** Get a page of a list, and the function that gets the next one, if there is any. */
export async function page(path, field) {
  const answer = await get(path)
  const base = path.replace(/[?&]cursor=[^&]*$/, '')
  const separator = base.includes('?') ? '&' : '?'
  const next = answer.next === undefined ? undefined : `${base}${separator}cursor=${encodeURIComponent(answer.next)}`
  return { items: answer[field], more: next && (() => page(next, field)), answer }
}

/** What the session may do; undefined: there is none. */
export async function session() {
  const response = await fetch('/console/session')
  return response.status === 401 ? undefined : (await answerOf(response)).json()
}

/** Open a session with the one-time code of a link. */
export async function logInWithCode(code) {
  const headers = { 'content-type': 'application/json' }
  await answerOf(await fetch('/console/login', { method: 'POST', headers, body: JSON.stringify({ code }) }))
}

/** Open a session with a server token, which is not kept. */
export async function logInWithToken(token) {
  await answerOf(await fetch('/console/session', { method: 'POST', headers: { authorization: `Bearer ${token}` } }))
}

/** End the session. */
export async function logOut() { await answerOf(await fetch('/console/logout', { method: 'POST' })) }

/** The metrics of the gateway, or of a store by its number, as text. */
export async function metrics(store, signal) {
  const query = store === undefined ? '' : `?store=${store}`
  return (await answerOf(await fetch(`/console/metrics${query}`, { signal }))).text()
}

/** Call `receive` with each event of a channel until `signal` aborts. Reconnects, and resumes after the last event. */
export async function follow(cid, receive, changed, signal) {
  let last
  while (!signal.aborted) {
    try {
      const headers = last === undefined ? {} : { 'last-event-id': last }
      const address = `/console/v1/events?channels=${encodeURIComponent(cid)}`
      const response = await answerOf(await fetch(address, { headers, signal }))
      changed(true)
      let text = ''
      const decoder = new TextDecoder()
      for await (const bytes of response.body) {
        text += decoder.decode(bytes, { stream: true })
        for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
          const lines = text.slice(0, end).split('\n')
          text = text.slice(end + 2)
          const field = (name) => {
            const prefix = `${name}: `
            return lines.filter((line) => line.startsWith(prefix)).map((line) => line.slice(prefix.length))
          }
          last = field('id')[0] ?? last
          const data = field('data').join('\n')
          if (data !== '') receive(JSON.parse(data))
        }
      }
    } catch (error) {
      if (signal.aborted) return
      if (error instanceof Refused && error.status < 500) throw error
    }
    changed(false)
    await new Promise((resolve) => setTimeout(resolve, 1000))
  }
}
