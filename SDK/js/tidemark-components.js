/**
 * Elements that show what tidemark.js knows: ticks, readers, unread counts and the divider before unread messages.
 *
 * One ES module without dependencies. `provide(tidemark)` gives the client to all elements of the page, or set the
 * property `client` of one element. Types are in tidemark-components.d.ts, the guide is docs/api/sdk-web.md.
 *
 * All text of users, such as ids, names and notes, is set as text, never as HTML.
 */

// Words

/** All words that the elements show or speak. Replace those of your language: `Object.assign(words, { … })`. */
export const words = {
  pending: 'Not sent yet',
  sent: 'Sent',
  delivered: 'Delivered',
  read: 'Read',
  failed: 'Not sent',
  /** @param {number} count */
  readBy: (count) => `Read by ${count}`,
  unread: (count) => (count === 1 ? '1 unread message' : `${count} unread messages`),
  markedUnread: 'Marked unread',
  /** @param {string[]} names @param {number} more */
  readers: (names, more) => `Read by ${names.join(', ')}${more > 0 ? ` and ${more} more` : ''}`,
  nobody: 'Read by nobody yet',
  more: (count) => `and ${count} more`,
  title: 'Message info',
  close: 'Close',
  lists: {
    readers: 'Read', delivered: 'Delivered', unread: 'Not read', acknowledged: 'Acknowledged',
    unacknowledged: 'Not acknowledged',
  },
  empty: 'Nobody',
  loading: 'Loading…',
  loadMore: 'Show more',
  again: 'This could not be loaded. Try again',
  /** The time of a receipt; undefined: it is not known exactly. */
  time: (date) => (date ? date.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' }) : ''),
}

// The client

let shared
/** Elements on the page. */
const connected = new Set()

/** Give the client to all elements of the page that have no `client` of their own. */
export function provide(tidemark) {
  shared = tidemark
  for (const element of [...connected]) element.clientChanged()
}

const styleSheet = (style) => {
  const sheet = new CSSStyleSheet()
  sheet.replaceSync(style)
  return sheet
}

/** What all elements have in common: a client, the place, and one drawing for changes that come together. */
class TidemarkElement extends HTMLElement {
  static observedAttributes = ['cid', 'thread', 'message-id', 'seq', 'user', 'failed', 'max', 'receipt', 'count']
  #client
  #stop
  #isDrawing = false

  constructor() {
    super()
    this.root = this.attachShadow({ mode: 'open' })
    this.root.adoptedStyleSheets = [base, this.constructor.sheet]
  }

  /** The element's own client, or the page's. */
  get client() {
    return this.#client ?? shared
  }
  set client(client) {
    this.#client = client
    if (this.isConnected) this.clientChanged()
  }

  /** The message: `{ cid, thread?, id, seq?, user?, failed? }`. */
  get message() {
    return {
      cid: this.getAttribute('cid') ?? '', thread: this.getAttribute('thread') ?? undefined,
      id: this.getAttribute('message-id') ?? undefined, seq: Number(this.getAttribute('seq')) || undefined,
      user: this.getAttribute('user') ?? undefined, failed: this.hasAttribute('failed'),
    }
  }
  set message({ cid, thread, id, seq, user, failed }) {
    const set = (name, value) => (value === undefined ? this.removeAttribute(name) : this.setAttribute(name, value))
    set('cid', cid)
    set('thread', thread)
    set('message-id', id)
    set('seq', seq)
    set('user', user)
    this.toggleAttribute('failed', Boolean(failed))
  }

  connectedCallback() {
    connected.add(this)
    this.clientChanged()
  }

  disconnectedCallback() {
    connected.delete(this)
    this.#stop?.()
    this.#stop = undefined
  }

  attributeChangedCallback() {
    this.drawSoon()
  }

  clientChanged() {
    this.#stop?.()
    this.#stop = this.client && this.follow(this.client)
    this.drawSoon()
  }

  /** Draw after changes of the place. @returns what ends it */
  follow(client) {
    return client.on('change', (changed) => {
      if (changed.cid === this.message.cid && changed.thread === this.message.thread) this.drawSoon()
    })
  }

  drawSoon() {
    if (this.#isDrawing) return
    this.#isDrawing = true
    // A frame never comes while the page is hidden, and a badge is also read then.
    queueMicrotask(() => {
      this.#isDrawing = false
      if (this.isConnected && this.client) this.draw(this.client)
    })
  }

  /** Show the element, or take it out of the layout and of what is spoken. */
  show(isShown) {
    this.toggleAttribute('hidden', !isShown)
    return isShown
  }
}

const base = styleSheet(`
  :host { --accent: var(--tidemark-accent, #0a7cff); --muted: var(--tidemark-muted, #6b7280);
    --alarm: var(--tidemark-alarm, #c62828); --surface: var(--tidemark-surface, Canvas);
    --text: var(--tidemark-text, CanvasText);
    --line: var(--tidemark-line, color-mix(in srgb, currentColor 18%, transparent));
    --quick: 160ms; font: inherit; }
  :host([hidden]) { display: none; }
  * { box-sizing: border-box; }
  @media (prefers-reduced-motion: reduce) { :host { --quick: 0ms; } }
`)

/** An element with attributes, properties that begin with `on`, and children. */
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value)
    else if (value === true) element.setAttribute(key, '')
    else if (value !== undefined && value !== false) element.setAttribute(key, value)
  }
  element.append(...children)
  return element
}

const svg = (viewBox, ...paths) => {
  const element = document.createElementNS('http://www.w3.org/2000/svg', 'svg')
  element.setAttribute('viewBox', viewBox)
  element.setAttribute('aria-hidden', 'true')
  for (const [part, d] of paths) {
    const path = document.createElementNS('http://www.w3.org/2000/svg', 'path')
    path.setAttribute('class', part)
    path.setAttribute('d', d)
    element.append(path)
  }
  return element
}

// Ticks

/** Statuses that receipts tell. */
const told = ['sent', 'delivered', 'read']

/**
 * `<tidemark-ticks cid message-id seq user [thread] [failed] [count]>`: how far an own message has come. A clock, one
 * tick, two ticks, two coloured ticks, or a warning. Nothing for messages of others, and none of a kind of receipts
 * that the channel does not show. `count` adds the number of readers.
 *
 * CSS: `--tidemark-accent`, `--tidemark-muted`, `--tidemark-alarm`, parts `icon` and `count`.
 */
export class TidemarkTicks extends TidemarkElement {
  static sheet = styleSheet(`
    :host { display: inline-flex; align-items: center; gap: .25em; color: var(--muted); line-height: 1; }
    svg { inline-size: 1.35em; block-size: 1em; fill: none; stroke: currentColor; stroke-width: 1.7;
      stroke-linecap: round; stroke-linejoin: round; overflow: visible; transition: color var(--quick); }
    path { opacity: 0; transition: opacity var(--quick), stroke-dashoffset calc(var(--quick) * 1.6) ease-out; }
    .first, .second { stroke-dasharray: 22; stroke-dashoffset: 22; }
    :host([status=pending]) .clock, :host([status=failed]) .warning { opacity: 1; }
    :host([status=sent]) .first, :host([status=delivered]) :is(.first, .second),
    :host([status=read]) :is(.first, .second) { opacity: 1; stroke-dashoffset: 0; }
    :host([status=read]) { color: var(--accent); }
    :host([status=failed]) { color: var(--alarm); }
    span { font-size: .85em; font-variant-numeric: tabular-nums; }
  `)
  #icon = svg(
    '0 0 22 16',
    ['clock', 'M11 2.2a5.8 5.8 0 1 0 0 11.6a5.8 5.8 0 1 0 0-11.6M11 5v3.2l2.2 1.4'],
    ['first', 'M2 8.6l4 4L14.6 3.4'], ['second', 'M9.4 12l.8.6L19.4 3.4'],
    ['warning', 'M11 2.2a5.8 5.8 0 1 0 0 11.6a5.8 5.8 0 1 0 0-11.6M11 5v3.6M11 11v.1'],
  )
  #count = make('span', { part: 'count' })

  constructor() {
    super()
    this.#icon.setAttribute('part', 'icon')
    this.root.append(this.#icon, this.#count)
  }

  draw(client) {
    const { message } = this
    const shown = client.receiptsShown(message.cid, message.thread)
    let status = client.deliveryStatus(message)
    const isTold = !told.includes(status) || shown.read || shown.delivered
    if (!this.show(message.user === client.user && isTold)) return
    if (status === 'read' && !shown.read) status = 'delivered'
    if (status === 'delivered' && !shown.delivered) status = 'sent'
    this.setAttribute('status', status)
    const readers = status === 'read' && this.hasAttribute('count') ? client.readersFor(message).length : 0
    this.#count.textContent = readers > 0 ? readers.toLocaleString() : ''
    this.setAttribute('role', 'img')
    this.setAttribute('aria-label', readers > 0 ? words.readBy(readers) : words[status])
  }
}

// Readers

/** Names and pictures of users: `(id) => ({ name, picture? })`. Replace it with your app's: `people.of = …`. */
export const people = { of: (id) => ({ name: id }) }

const nameOf = (id) => people.of(id)?.name ?? id

function avatar(id) {
  const { name = id, picture } = people.of(id) ?? {}
  let hue = 0
  for (const unit of id) hue = (hue * 31 + unit.codePointAt(0)) % 360
  const initials = [...name.trim()][0]?.toUpperCase() ?? '?'
  const element = make('span', { class: 'avatar', part: 'avatar', 'aria-hidden': 'true' }, initials)
  element.style.setProperty('--hue', hue)
  if (picture) element.replaceChildren(make('img', { src: picture, alt: '', loading: 'lazy' }))
  return element
}

/**
 * `<tidemark-readers cid message-id seq user [thread] [max] [receipt]>`: who has read a message: up to `max` (3)
 * pictures of the last readers, "and N more", and a sheet with lists and times. `receipt`: the message asks for an
 * acknowledgement, so the sheet has these lists too.
 *
 * CSS: `--tidemark-accent`, `--tidemark-surface`, `--tidemark-text`, `--tidemark-line`, parts `button`, `avatar`,
 * `sheet`.
 */
export class TidemarkReaders extends TidemarkElement {
  static sheet = styleSheet(`
    :host { display: inline-block; }
    .avatar { display: inline-grid; place-items: center; flex: none; inline-size: 1.6em; block-size: 1.6em;
      border-radius: 50%; background: hsl(var(--hue) 55% 38%); color: #fff; font-weight: 600; font-size: .8em;
      overflow: hidden; }
    .avatar img { inline-size: 100%; block-size: 100%; object-fit: cover; }
    button { font: inherit; color: inherit; background: none; border: 0; cursor: pointer; }
    button:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
    .open { display: inline-flex; align-items: center; padding: .2em .3em; border-radius: 999px;
      min-block-size: 24px; color: var(--muted); }
    .open .avatar + .avatar { margin-inline-start: -.45em; }
    .open .avatar { box-shadow: 0 0 0 2px var(--surface); }
    .open small { margin-inline-start: .4em; }
    dialog { inline-size: min(26rem, 100vw); max-inline-size: none; max-block-size: min(36rem, 85dvh); padding: 0;
      border: 0; border-radius: 16px; background: var(--surface); color: var(--text); overflow: hidden;
      box-shadow: 0 18px 60px rgb(0 0 0 / .35); }
    dialog[open] { display: flex; flex-direction: column; animation: appear var(--quick) ease-out; }
    dialog::backdrop { background: rgb(0 0 0 / .4); }
    @keyframes appear { from { opacity: 0; transform: translateY(12px); } }
    header { display: flex; align-items: center; padding: .9em 1em .3em; }
    h2 { font-size: 1.05em; margin: 0; flex: 1; }
    .close { inline-size: 32px; block-size: 32px; border-radius: 50%; }
    .close:hover { background: var(--line); }
    [role=tablist] { display: flex; gap: .25em; padding: 0 .6em; border-block-end: 1px solid var(--line);
      overflow-x: auto; }
    [role=tab] { padding: .7em .6em; white-space: nowrap; border-block-end: 2px solid transparent; }
    [role=tab][aria-selected=true] { border-color: var(--accent); color: var(--accent); font-weight: 600; }
    [role=tabpanel] { overflow-y: auto; padding: .4em 0 .8em; min-block-size: 9em; }
    ul { list-style: none; margin: 0; padding: 0; }
    li { display: flex; align-items: center; gap: .7em; padding: .45em 1em; }
    li .avatar { font-size: 1em; }
    li div { min-inline-size: 0; flex: 1; }
    li strong { display: block; font-weight: 500; overflow: hidden; text-overflow: ellipsis; }
    li q { display: block; color: var(--muted); overflow-wrap: anywhere; }
    time, p { color: var(--muted); font-size: .85em; }
    p { padding: .6em 1em; margin: 0; }
    .next { margin: .4em 1em; padding: .5em .9em; border-radius: 999px; border: 1px solid var(--line); }
    @media (max-width: 480px) { dialog { margin-block-end: 0; inline-size: 100vw; border-end-start-radius: 0;
      border-end-end-radius: 0; } }
  `)
  #button = make('button', { class: 'open', part: 'button', type: 'button', onclick: () => this.openSheet() })
  #sheet

  constructor() {
    super()
    this.root.append(this.#button)
  }

  draw(client) {
    const { message } = this
    const isKnown = message.seq !== undefined && client.receiptsShown(message.cid, message.thread).read
    if (!this.show(isKnown && client.readState(message.cid, message.thread) !== undefined)) return
    const rows = client.readState(message.cid, message.thread)
    const readers = client.readersFor(message).filter((user) => user !== client.user)
    const timeOf = (user) => Date.parse(rows.get(user)?.last_read) || 0
    const last = readers.sort((a, b) => timeOf(b) - timeOf(a)).slice(0, Number(this.getAttribute('max')) || 3)
    const more = readers.length - last.length
    this.#button.replaceChildren(...last.map(avatar))
    if (more > 0) this.#button.append(make('small', {}, words.more(more)))
    if (readers.length === 0) this.#button.append(make('small', {}, words.nobody))
    this.#button.setAttribute('aria-label', readers.length > 0 ? words.readers(last.map(nameOf), more) : words.nobody)
    this.#button.setAttribute('aria-haspopup', 'dialog')
    this.#sheet?.changed()
  }

  /** Open the sheet with the message's lists. */
  openSheet() {
    if (this.#sheet || !this.client) return
    const names = ['readers', 'delivered', 'unread']
    const { delivered } = this.client.receiptsShown(this.message.cid, this.message.thread)
    if (!delivered) names.splice(1, 1)
    if (this.hasAttribute('receipt')) names.push('acknowledged', 'unacknowledged')
    this.#sheet = new Sheet(this.client, this.message, names, () => {
      this.#sheet = undefined
      this.#button.focus()
    })
    this.root.append(this.#sheet.dialog)
    this.#sheet.open()
  }

  disconnectedCallback() {
    super.disconnectedCallback()
    this.#sheet?.close()
  }
}

/** The lists of a message, one at a time, page by page. */
class Sheet {
  /** Milliseconds between two loads of a list that changes. */
  static pause = 1000
  #tabs = []
  #list = make('ul')
  #foot = make('div', { 'aria-live': 'polite' })
  #panel = make('div', { role: 'tabpanel', id: 'panel', tabindex: '0' }, this.#list, this.#foot)
  #name
  #loads = 0
  #timer

  constructor(client, message, names, closed) {
    Object.assign(this, { client, message, names })
    const tabs = make('div', { role: 'tablist', 'aria-label': words.title, onkeydown: (event) => this.#move(event) })
    for (const name of names) {
      const tab = make('button', {
        role: 'tab', type: 'button', id: `tab-${name}`, 'aria-controls': 'panel', onclick: () => this.#select(name),
      }, words.lists[name])
      this.#tabs.push(tab)
      tabs.append(tab)
    }
    const close = make('button', {
      class: 'close', type: 'button', 'aria-label': words.close, onclick: () => this.close(),
    }, '✕')
    const header = make('header', {}, make('h2', { id: 'title' }, words.title), close)
    this.dialog = make('dialog', { part: 'sheet', 'aria-labelledby': 'title' }, header, tabs, this.#panel)
    this.dialog.addEventListener('click', (event) => event.target === this.dialog && this.close())
    this.dialog.addEventListener('close', () => {
      clearTimeout(this.#timer)
      this.#loads += 1
      this.dialog.remove()
      closed()
    }, { once: true })
  }

  open() {
    this.dialog.showModal()
    this.#select(this.names[0])
  }

  close() {
    this.dialog.close()
  }

  /** The rows have changed: load the first page again. A list that was continued stays as it is. */
  changed() {
    if (this.#list.children.length > 100) return
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined
      this.#load()
    }, Sheet.pause)
  }

  #select(name) {
    this.#name = name
    for (const tab of this.#tabs) {
      const isSelected = tab.id === `tab-${name}`
      tab.setAttribute('aria-selected', isSelected)
      tab.tabIndex = isSelected ? 0 : -1
    }
    this.#panel.setAttribute('aria-labelledby', `tab-${name}`)
    this.#list.replaceChildren()
    this.#foot.replaceChildren(make('p', {}, words.loading))
    this.#load()
  }

  #move(event) {
    const isRightToLeft = getComputedStyle(this.dialog).direction === 'rtl'
    const steps = { ArrowRight: isRightToLeft ? -1 : 1, ArrowLeft: isRightToLeft ? 1 : -1 }
    const { length } = this.names
    const now = this.names.indexOf(this.#name)
    const next = { Home: 0, End: length - 1 }[event.key] ?? (now + length + (steps[event.key] ?? 0)) % length
    if (next === now) return
    event.preventDefault()
    this.#select(this.names[next])
    this.#tabs[next].focus()
  }

  /** @param {string} [cursor] continues the list; otherwise it is loaded from the start */
  async #load(cursor) {
    const load = ++this.#loads
    const name = this.#name
    try {
      const page = await this.client.listMembers(this.message, name, { cursor })
      if (load !== this.#loads) return
      const rows = page.members.map((member) => this.#row(member))
      if (cursor) this.#list.append(...rows)
      else this.#list.replaceChildren(...rows)
      this.#foot.replaceChildren()
      if (page.total !== undefined) {
        this.#tabs[this.names.indexOf(name)].textContent = `${words.lists[name]} ${page.total.toLocaleString()}`
      }
      if (this.#list.children.length === 0) this.#foot.append(make('p', {}, words.empty))
      if (page.next) this.#button(words.loadMore, page.next)
    } catch {
      if (load !== this.#loads) return
      this.#foot.replaceChildren()
      this.#button(words.again, cursor)
    }
  }

  #button(text, cursor) {
    this.#foot.append(make('button', { class: 'next', type: 'button', onclick: () => this.#load(cursor) }, text))
  }

  #row({ user, read_at, delivered_at, acknowledged_at, exact, note }) {
    const at = acknowledged_at ?? read_at ?? delivered_at
    const about = make('div', {}, make('strong', {}, make('bdi', {}, nameOf(user.id))))
    if (note) about.append(make('q', {}, note))
    const row = make('li', {}, avatar(user.id), about)
    if (at && exact !== false) row.append(make('time', { datetime: at }, words.time(new Date(at))))
    return row
  }
}

// The divider before unread messages

/**
 * `<tidemark-unread-divider cid message-id [thread]>` before each message: shown before the first one that was unread
 * when the channel was opened. It stays there while messages are read, and moves when the person marks unread.
 *
 * CSS: `--tidemark-accent`, part `text`.
 */
export class TidemarkUnreadDivider extends TidemarkElement {
  static sheet = styleSheet(`
    :host { display: flex; align-items: center; gap: .8em; color: var(--accent); font-size: .85em; font-weight: 600; }
    :host::before, :host::after { content: ''; flex: 1; block-size: 1px; background: currentColor; opacity: .4; }
  `)
  #text = make('span', { part: 'text' })

  constructor() {
    super()
    this.root.append(this.#text)
  }

  draw(client) {
    const { cid, thread, id } = this.message
    const opened = client.unreadWhenOpened(cid, thread)
    if (!this.show(id !== undefined && opened?.messageId === id)) return
    this.#text.textContent = words.unread(opened.count)
    this.setAttribute('role', 'separator')
    this.setAttribute('aria-label', this.#text.textContent)
  }
}

// Badges

/**
 * `<tidemark-badge [cid] [thread] [max]>`: the number of unread messages of a channel, or of all channels. Above `max`
 * (99) it says "99+". A dot for a channel that was marked unread and has none.
 *
 * CSS: `--tidemark-accent`, part `badge`.
 */
export class TidemarkBadge extends TidemarkElement {
  static sheet = styleSheet(`
    :host { display: inline-block; }
    span { display: inline-grid; place-items: center; min-inline-size: 1.7em; block-size: 1.7em; padding: 0 .45em;
      border-radius: 999px; background: var(--accent); color: var(--tidemark-on-accent, #fff); font-size: .75em;
      font-weight: 700; font-variant-numeric: tabular-nums; }
    span:empty { min-inline-size: .8em; block-size: .8em; padding: 0; }
  `)
  #badge = make('span', { part: 'badge' })

  constructor() {
    super()
    this.root.append(this.#badge)
  }

  follow(client) {
    const stops = [super.follow(client), client.on('totals', () => this.drawSoon())]
    return () => stops.forEach((stop) => stop())
  }

  draw(client) {
    const { cid, thread } = this.message
    const count = (cid ? client.countUnread(cid, thread) : client.totals?.total_unread_count) ?? 0
    const isMarked = Boolean(cid && client.readState(cid, thread)?.get(client.user)?.marked_unread)
    if (!this.show(count > 0 || isMarked)) return
    const max = Number(this.getAttribute('max')) || 99
    this.#badge.textContent = count > max ? `${max.toLocaleString()}+` : count > 0 ? count.toLocaleString() : ''
    this.setAttribute('role', 'status')
    this.setAttribute('aria-label', count > 0 ? words.unread(count) : words.markedUnread)
  }
}

const elements = {
  'tidemark-ticks': TidemarkTicks, 'tidemark-readers': TidemarkReaders,
  'tidemark-unread-divider': TidemarkUnreadDivider, 'tidemark-badge': TidemarkBadge,
}
for (const [name, element] of Object.entries(elements)) {
  if (!customElements.get(name)) customElements.define(name, element)
}
