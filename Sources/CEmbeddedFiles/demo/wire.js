import { FetchTransport } from '/sdk/tidemark.js'
import { make } from '/demo/elements.js'
import { words } from '/demo/words.js'

/** Entries that the panel keeps. */
const entriesMax = 200

/** The panel of requests and events as they pass. Credentials are in none of them. */
export class Wire {
  #entries = make('ol', { class: 'entries', 'aria-label': words.wire, tabindex: '0' })

  constructor() {
    this.element = make(
      'aside',
      { class: 'wire' },
      make(
        'header',
        {},
        make('h2', {}, words.wire),
        make('button', { type: 'button', onclick: () => this.#entries.replaceChildren() }, words.clear),
      ),
      make('p', {}, words.wireHint),
      this.#entries,
    )
  }

  /** Add an entry on top. @returns a function that adds the answer to it */
  add(person, direction, title, content) {
    const answer = make('b')
    const details = make(
      'details',
      {},
      make('summary', {}, make('i', {}, words.people[person]?.name ?? words.backend), make('span', {}, title), answer),
    )
    const show = (label, value) => value && details.append(make('pre', { 'data-label': label }, readable(value)))
    show(direction, content)
    this.#entries.prepend(make('li', { class: `${direction} ${person}` }, details))
    while (this.#entries.children.length > entriesMax) this.#entries.lastElementChild.remove()
    return (status, body) => {
      answer.textContent = status
      show('answer', body)
    }
  }
}

function readable(value) {
  try {
    return JSON.stringify(typeof value === 'string' ? JSON.parse(value) : value, null, 1)
  } catch {
    return String(value)
  }
}

/** A person's way to the gateway: shows what passes, and can be cut. */
export class WatchedTransport {
  #open = new Set()

  constructor(wire, person) {
    Object.assign(this, { wire, person, isCut: false })
    this.transport = new FetchTransport(location.origin)
  }

  cut() {
    this.isCut = true
    this.reset()
  }

  mend() {
    this.isCut = false
  }

  async open(request) {
    const cut = new AbortController()
    this.#open.add(cut)
    if (this.isCut) cut.abort()
    const finish = this.wire.add(this.person, 'request', `${request.method} ${request.path}`, request.body)
    try {
      const signal = request.signal ? AbortSignal.any([request.signal, cut.signal]) : cut.signal
      const response = await this.transport.open({ ...request, signal })
      const isStream = response.header('content-type')?.startsWith('text/event-stream')
      const chunks = isStream ? this.#events(response, cut) : this.#whole(response, cut, finish)
      if (isStream) finish(response.status)
      return { status: response.status, header: response.header, chunks }
    } catch (error) {
      this.#open.delete(cut)
      finish('×')
      throw error
    }
  }

  async *#whole(response, cut, finish) {
    const decoder = new TextDecoder()
    let text = ''
    try {
      for await (const chunk of response.chunks) {
        text += decoder.decode(chunk, { stream: true })
        yield chunk
      }
    } finally {
      this.#open.delete(cut)
      finish(response.status, text)
    }
  }

  async *#events(response, cut) {
    const decoder = new TextDecoder()
    let rest = ''
    try {
      for await (const chunk of response.chunks) {
        const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n')
        rest = lines.pop()
        for (const line of lines) {
          if (!line.startsWith('data:')) continue
          const event = JSON.parse(line.slice(5))
          this.wire.add(this.person, 'event', event.type, event)
        }
        yield chunk
      }
    } finally {
      this.#open.delete(cut)
    }
  }

  reset() {
    for (const cut of this.#open) cut.abort()
  }

  close() {
    this.reset()
  }
}
