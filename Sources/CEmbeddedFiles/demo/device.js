/** One person's device: a client of its own, and three screens: the list, the group, and a thread. */
import { ackTicket, Tidemark } from '/sdk/tidemark.js'
import { arrange, choice, make } from '/demo/elements.js'
import { WatchedTransport } from '/demo/wire.js'
import { words } from '/demo/words.js'

export class Device {
  #backend
  #transport
  #mode = 'online'
  #screen = 'list'
  #thread
  /** Messages that are on the device, by id, in their order. Own ones that are not sent yet have no `seq`. */
  #messages = new Map()
  #rows = new Map()
  #acknowledged = new Map()
  #isDrawing = false
  #stopReading

  constructor(user, backend, wire, token) {
    Object.assign(this, { user, token, ...words.people[user] })
    this.#backend = backend
    this.#transport = new WatchedTransport(wire, user)
    this.#build()
    backend.on((message) => (message ? this.#arrived(message) : this.#restart()))
  }

  // The client

  /** Begin with the backend's group. */
  async start() {
    this.#messages.clear()
    this.#rows.clear()
    if (!this.tidemark) this.#makeClient()
    await this.#fetch()
    this.#draw()
  }

  #makeClient() {
    const { tidemark } = this
    this.tidemark = new Tidemark({
      url: location.origin, user: this.user, transport: this.#transport, tokenProvider: () => this.token,
    })
    tidemark?.close()
    this.tidemark.on('change', () => this.#drawSoon())
    this.tidemark.on('totals', () => this.#drawSoon())
    this.tidemark.on('refused', ({ code }) => this.#say(words.refused(code)))
    this.tidemark.on('receipt', (event) => {
      this.#acknowledged.set(event.message_id, event.acknowledged_count)
      this.#drawSoon()
    })
    this.#stopReading = this.tidemark.autoRead(() => this.#visible())
    this.tidemark.start().catch((error) => this.#say(words.refused(error.code)))
    this.#rows.clear()
    this.#badge.client = this.tidemark
  }

  async #restart() {
    this.#thread = undefined
    this.#acknowledged.clear()
    await this.start()
  }

  /** What autoRead may read: the newest message of the screen, if the list is at its end. */
  #visible() {
    if (this.#mode !== 'online' || this.#screen === 'list') return undefined
    const { scrollTop, scrollHeight, clientHeight } = this.#list
    const newest = this.#shown().findLast(({ seq }) => seq)
    if (!newest || scrollHeight - scrollTop - clientHeight > 40) return undefined
    return { cid: newest.cid, thread: this.#thread, messageId: newest.id }
  }

  #setMode(mode) {
    const before = this.#mode
    this.#mode = mode
    if (mode === 'online') this.#transport.mend()
    else this.#transport.cut()
    if (mode === 'push') {
      this.#stopReading?.()
      this.tidemark.close()
      this.#notices.replaceChildren()
    } else if (before === 'push') {
      this.#makeClient()
    }
    if (mode === 'online') this.#fetch().then(() => this.#flush())
    this.#draw()
  }

  // Messages

  /** Take what the backend has and the device lacks, as after a login. */
  async #fetch() {
    const { group } = this.#backend
    if (!group || this.#mode !== 'online') return
    const { tidemark } = this
    await tidemark.open(group.cid).catch(() => {})
    for (const message of group.messages) this.#keep(message)
    await this.#showAll(tidemark)
    this.#draw()
  }

  #keep(message) {
    const isNew = !this.#messages.get(message.id)?.seq
    this.#messages.set(message.id, { ...this.#messages.get(message.id), ...message, failed: false })
    if (isNew && message.user !== this.user) this.tidemark.markDelivered(message.cid, message.id, message.parent)
  }

  /** Tell the client what is on the screens, so that it knows the statuses of own messages. */
  async #showAll(tidemark) {
    const { group } = this.#backend
    const sent = [...this.#messages.values()].filter(({ seq }) => seq)
    const show = (messages, thread) => messages.length > 0 && tidemark.show(group.cid, messages, thread).catch(() => {})
    await show(sent.filter(({ parent }) => !parent))
    if (this.#thread) await show(sent.filter(({ parent }) => parent === this.#thread), this.#thread)
  }

  async #arrived(message) {
    if (this.#mode === 'push' && message.user !== this.user) return this.#push(message)
    if (this.#mode !== 'online') return
    this.#keep(message)
    this.#draw()
    if (message.user === this.user) await this.#showAll(this.tidemark)
  }

  /** The app is closed: only the ticket of the push says that the message is here. */
  async #push(message) {
    const { name } = words.people[message.user]
    this.#notices.prepend(make('li', {}, words.notification(name, message.text)))
    this.#transport.mend()
    const ticket = await this.#backend.ticket(message, this.user)
    await ackTicket(ticket, { url: location.origin, transport: this.#transport }).catch(() => {})
    if (this.#mode === 'push') this.#transport.cut()
  }

  #send() {
    const text = this.#input.value.trim()
    if (!text) return
    const { cid } = this.#backend.group
    const id = crypto.randomUUID()
    const receipt = this.#ask.checked && !this.#thread
    this.#messages.set(id, { cid, id, user: this.user, text, parent: this.#thread, receipt })
    this.#input.value = ''
    this.#ask.checked = false
    this.#draw()
    this.#flush()
  }

  /** Send own messages that wait, in order. */
  async #flush() {
    for (const message of [...this.#messages.values()]) {
      if (this.#mode !== 'online') return
      if (message.seq) continue
      await this.#backend.send(message).catch(() => {
        this.#messages.set(message.id, { ...message, failed: true })
      })
    }
    this.#draw()
  }

  #shown() {
    const shown = [...this.#messages.values()].filter(({ parent }) => parent === this.#thread)
    return shown.sort((a, b) => (a.seq ?? Infinity) - (b.seq ?? Infinity))
  }

  // Screens

  #title = make('h3')
  #back = make('button', {
    type: 'button', class: 'icon', 'aria-label': words.back, onclick: () => this.#go(this.#thread ? 'group' : 'list'),
  }, '‹')
  #badge = make('tidemark-badge')
  #list = make('ol', { class: 'messages', tabindex: '0' })
  #notices = make('ul', { class: 'notices', 'aria-live': 'polite' })
  #pending = make('p', { class: 'pending', role: 'status' })
  #toast = make('p', { class: 'toast', role: 'alert' })
  #ask = make('input', { type: 'checkbox' })
  #input = make('input', { type: 'text', placeholder: words.write, maxlength: '500', autocomplete: 'off' })
  #screens = make('div', { class: 'screen' })

  #build() {
    const switches = [['read', words.readReceipts], ['delivered', words.deliveryReceipts]].map(([kind, label]) =>
      make('label', { class: 'switch' }, make('input', {
        type: 'checkbox', checked: true, role: 'switch',
        onchange: ({ target }) => this.#setReceipts(kind, target),
      }), make('span', {}, label)))
    this.#input.setAttribute('aria-label', words.write)
    this.#screens.append(
      make('section', { class: 'list' },
        make('button', { type: 'button', class: 'group', onclick: () => this.#go('group') },
          make('span', { class: 'face', 'aria-hidden': 'true' }, '#'), make('span', { class: 'about' }), this.#badge)),
      make('section', { class: 'chat' },
        make('header', {}, this.#back, this.#title),
        this.#list,
        make('form', { onsubmit: (event) => (event.preventDefault(), this.#send()) },
          make('label', { class: 'ask', title: words.ask }, this.#ask, make('span', {}, '✓?'),
            make('span', { class: 'spoken' }, words.ask)),
          this.#input, make('button', { type: 'submit', class: 'primary' }, words.send))),
      make('section', { class: 'locked' }, make('h3', {}, words.locked), make('p', {}, words.lockedHint), this.#notices,
        make('button', { type: 'button', class: 'primary', onclick: () => this.#openApp() }, words.openApp)),
    )
    this.#modes = choice({
      legend: words.modeOf(this.name), name: `mode-${this.user}`, values: words.modes, value: this.#mode,
      choose: (mode) => this.#setMode(mode),
    })
    this.element = make('section', {
      class: `device ${this.device} ${this.user}`, 'aria-label': words.deviceOf(this.name, this.device),
    }, make('header', { class: 'owner' },
      make('h2', {}, make('span', { class: 'face', 'aria-hidden': 'true' }, this.name[0]), this.name), this.#modes,
      make('details', { class: 'settings' }, make('summary', {}, words.settings), ...switches)),
    make('div', { class: 'frame' }, this.#screens, this.#pending, this.#toast))
  }
  #modes

  #openApp() {
    this.#modes.querySelector('[value=online]').checked = true
    this.#screen = 'group'
    this.#setMode('online')
  }

  async #setReceipts(kind, input) {
    await this.tidemark.setReceipts({ [kind]: input.checked }).catch((error) => {
      input.checked = !input.checked
      this.#say(words.refused(error.code))
    })
  }

  #go(screen, thread) {
    const { group } = this.#backend
    this.#screen = screen
    this.#thread = thread
    this.#rows.clear()
    this.#list.replaceChildren()
    if (screen !== 'list') this.tidemark.open(group.cid, thread).catch(() => {})
    this.#draw()
    this.#showAll(this.tidemark)
    this.#list.scrollTop = this.#list.scrollHeight
  }

  #say(text) {
    this.#toast.textContent = text
    setTimeout(() => (this.#toast.textContent = ''), 5000)
  }

  #drawSoon() {
    if (this.#isDrawing) return
    this.#isDrawing = true
    requestAnimationFrame(() => {
      this.#isDrawing = false
      this.#draw()
    })
  }

  #draw() {
    const { group } = this.#backend
    if (!group) return
    this.element.dataset.mode = this.#mode
    this.element.dataset.screen = this.#mode === 'push' ? 'locked' : this.#screen === 'list' ? 'list' : 'chat'
    this.#badge.setAttribute('cid', group.cid)
    const last = [...this.#messages.values()].findLast(({ parent }) => !parent)
    this.#screens.querySelector('.about').replaceChildren(
      make('strong', {}, words.group(group.size)), make('small', {}, last?.text ?? words.nothing),
    )
    this.#title.textContent = this.#thread ? words.thread : words.group(group.size)
    const { pending } = this.tidemark
    this.#pending.textContent = this.#mode === 'offline' && pending > 0 ? words.waiting(pending) : ''
    const { scrollTop, scrollHeight, clientHeight } = this.#list
    const isAtEnd = scrollHeight - scrollTop - clientHeight < 40
    const parent = this.#thread && this.#messages.get(this.#thread)
    const shown = parent ? [parent, ...this.#shown()] : this.#shown()
    arrange(this.#list, shown.map((message) => this.#row(message)))
    if (isAtEnd) this.#list.scrollTop = this.#list.scrollHeight
  }

  /** A message's element, made once and then kept up to date. */
  #row(message) {
    const own = message.user === this.user
    if (!this.#rows.has(message.id)) this.#rows.set(message.id, this.#makeRow(message, own))
    const { element, ticks, readers, replies, count } = this.#rows.get(message.id)
    const { cid, id, seq, user, failed, parent: thread } = message
    if (ticks) ticks.message = { cid, thread, id, seq, user, failed }
    if (readers) readers.message = { cid, thread, id, seq, user }
    if (replies) {
      const number = [...this.#messages.values()].filter(({ parent }) => parent === id).length
      replies.textContent = words.replies(number)
    }
    if (count) count.textContent = words.acknowledgedBy(this.#acknowledged.get(id) ?? 0, this.#backend.group.size - 1)
    return element
  }

  #makeRow(message, own) {
    const { cid, id, seq, user, text, receipt, parent: thread } = message
    const client = this.tidemark
    const isChild = Boolean(thread)
    const ticks = own ? make('tidemark-ticks', { count: true, '.client': client }) : undefined
    const readers = own && make('tidemark-readers', { max: '3', receipt: Boolean(receipt), '.client': client })
    const isParent = this.#thread === id
    const replies = !isChild && !isParent && make('button', {
      type: 'button', class: 'quiet', onclick: () => this.#go('thread', id),
    })
    const count = own && receipt ? make('span', { class: 'count' }) : undefined
    const unread = !own && !isParent && make('button', {
      type: 'button', class: 'quiet', onclick: () => {
        client.markUnread(cid, { messageId: id, thread })
        if (!thread) this.#go('list')
      },
    }, words.markUnread)
    const divider = !isParent && make('tidemark-unread-divider', {
      cid, thread, 'message-id': id, '.client': client,
    })
    const bubble = make('div', { class: 'bubble' },
      !own && make('strong', {}, words.people[user]?.name ?? user),
      make('p', {}, text),
      !own && receipt && this.#acknowledgement(cid, id),
      count,
      own && make('span', { class: 'fate' }, ticks))
    const element = make('li', { class: own ? 'own' : 'other', 'data-id': id, 'data-seq': seq }, divider || undefined,
      bubble, make('div', { class: 'actions' }, readers || undefined, replies || undefined, unread || undefined))
    return { element, ticks, readers: readers || undefined, replies: replies || undefined, count }
  }

  #acknowledgement(cid, id) {
    const note = make('input', { type: 'text', placeholder: words.note, 'aria-label': words.note, maxlength: '200' })
    const done = () => form.replaceChildren(make('span', { class: 'done' }, `✓ ${words.acknowledged}`))
    const form = make('form', {
      class: 'acknowledge', onsubmit: (event) => {
        event.preventDefault()
        this.tidemark.acknowledge(cid, [id], note.value.trim() || undefined)
        done()
      },
    }, note, make('button', { type: 'submit', class: 'primary' }, words.acknowledge))
    // Perhaps it was done in another window. A failed query is repeated while the row is shown.
    const ask = () => this.tidemark.listMembers({ cid, id }, 'acknowledged').then(
      ({ members }) => members.some(({ user }) => user.id === this.user) && done(),
      () => setTimeout(() => form.isConnected && ask(), 2_000),
    )
    ask()
    return form
  }
}
