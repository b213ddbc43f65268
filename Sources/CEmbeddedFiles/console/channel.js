import { follow, get, page, path, Refused } from './api.js'
import { choice, make } from './elements.js'
import { link, offer, optionsTable, section, time, timeText } from './parts.js'
import { Picture } from './picture.js'
import { reasons } from './why.js'
import { words } from './words.js'

const text = words.channel
const tailMax = 200
const pagesToLookThrough = 50
const reloadPause = 500

/** The view of a channel: its read vector, its messages, its live events, and why a message is not read. */
export class ChannelView {
  #cid
  #signal
  #hasEnded
  #channel
  #picture
  #range = '50'
  #messages = new Map()
  #chosen = { user: undefined, message: undefined }
  #count = make('span', {})
  #moreRows = make('p', {})
  #list = make('ol', { class: 'messages' })
  #nextMessages
  #moreMessages = make('p', {})
  #tail = make('ol', { class: 'tail', 'aria-live': 'polite' }, make('li', { class: 'muted' }, text.tailEmpty))
  #connected = make('span', { class: 'state' }, text.tailOff)
  #why = make('div', { class: 'why' }, make('p', { class: 'muted' }, words.why.choose))

  /** @param hasEnded shows the log-in form if an error says that the session has ended, and returns whether it has */
  constructor(cid, signal, hasEnded) {
    this.#cid = cid
    this.#signal = signal
    this.#hasEnded = hasEnded
    this.#picture = new Picture((user, seq) => this.#point(user, seq))
  }

  /** Load the channel, and return the view. */
  async open(messageID) {
    await this.#load()
    // A change between this query and the stream is told by the query that follows the stream's start.
    const changed = (isOn) => {
      this.#setConnected(isOn)
      if (isOn) this.#reloadSoon()
    }
    follow(this.#cid, (event) => this.#received(event), changed, this.#signal).catch((error) => this.#fail(error))
    if (messageID !== undefined) this.#choose({ message: messageID })
    this.#describe()
    return make(
      'div',
      { class: 'channel' },
      make('header', {}, make('h1', {}, this.#cid), make('p', { class: 'muted' }, this.#count)),
      make(
        'div',
        { class: 'columns' },
        this.#pictureSection(), this.#whySection(), this.#messagesSection(), this.#tailSection(),
      ),
      this.#optionsSection(),
    )
  }

  #pictureSection() {
    const range = choice({
      legend: text.range, name: 'range', values: text.ranges, value: this.#range, choose: (key) => this.#setRange(key),
    })
    const hint = make('p', { class: 'muted' }, text.pictureHint)
    return section(text.picture, hint, range, this.#picture.element, this.#moreRows)
  }

  #whySection() { return section(words.why.title, this.#why) }
  #messagesSection() { return section(text.messages, this.#list, this.#moreMessages) }
  #tailSection() { return section(text.tail, this.#connected, this.#tail) }

  #optionsSection() {
    return make(
      'details',
      { class: 'card' },
      make('summary', {}, text.options),
      optionsTable(this.#channel.options),
    )
  }

  #describe() {
    const newest = this.#picture.newest
    const messages = newest === 0 ? text.empty : text.newest(newest)
    this.#count.textContent = `${text.members(this.#channel.member_count)}, ${messages}`
  }

  // Rows and messages

  /** Load the channel, and the newest rows and messages; those that were loaded before stay. */
  async #load() {
    this.#channel = (await get(path`/channels/${this.#cid}`, { signal: this.#signal })).channel
    this.#picture.newest = this.#channel.newest_message?.seq ?? 0
    const [rows, messages] = await Promise.all([
      page(path`/channels/${this.#cid}/read-state`, 'read'),
      page(path`/channels/${this.#cid}/messages?limit=30`, 'messages'),
    ])
    const isNew = (message) => !this.#messages.has(message.id)
    // More may have come meanwhile than a page has: the list must have no gap.
    if (messages.items.every(isNew)) {
      this.#messages.clear()
      this.#list.replaceChildren()
    }
    const isFirst = this.#messages.size === 0
    for (const row of rows.items) this.#picture.show(row)
    if (isFirst) this.#offer(this.#moreRows, rows.more, (next) => this.#loadRows(next))
    const added = messages.items.filter(isNew).map((message) => this.#entry(message))
    this.#list.prepend(...added)
    if (isFirst) this.#offerMessages(messages.more)
    this.#setRange(this.#range)
    this.#describe()
  }

  async #loadRows(more) {
    const rows = await more()
    for (const row of rows.items) this.#picture.show(row)
    this.#offer(this.#moreRows, rows.more, (next) => this.#loadRows(next))
    this.#picture.choose(this.#chosen.user, this.#seqOf(this.#chosen.message))
  }

  async #loadMessages() {
    const messages = await this.#nextMessages()
    for (const message of messages.items) {
      if (!this.#messages.has(message.id)) this.#list.append(this.#entry(message))
    }
    this.#offerMessages(messages.more)
  }

  #offerMessages(more) {
    this.#nextMessages = more
    this.#offer(this.#moreMessages, more, () => this.#loadMessages())
  }

  #offer(place, more, load) {
    offer(place, more, (next) => load(next).catch((error) => this.#fail(error)))
  }

  /** Load older messages until one is found. */
  async #find(isWanted) {
    const find = () => [...this.#messages.values()].find(isWanted)
    let found = find()
    for (let pages = 0; !found && this.#nextMessages && pages < pagesToLookThrough; pages += 1) {
      await this.#loadMessages()
      found = find()
    }
    return found
  }

  #drop(id) {
    this.#messages.delete(id)
    for (const entry of this.#list.children) if (entry.dataset.id === id) entry.remove()
  }

  #fail(error) {
    if (!this.#signal.aborted && !this.#hasEnded(error)) this.#setConnected(false, error.message)
  }

  #entry(message) {
    this.#messages.set(message.id, message)
    const sender = message.user ? text.by(message.user.id) : text.nobody
    const notes = [sender, message.silent && text.silent, message.receipt && text.asks].filter(Boolean).join(', ')
    const button = make(
      'button',
      { class: 'message', onclick: () => this.#choose({ message: message.id }) },
      make('span', { class: 'number' }, `${message.seq}`),
      make('b', {}, message.id),
      make('span', { class: 'muted' }, notes),
    )
    const isChosen = message.id === this.#chosen.message
    return make('li', { 'data-id': message.id, class: isChosen ? 'chosen' : undefined }, button)
  }

  #seqOf(id) { return this.#messages.get(id)?.parent_id === undefined ? this.#messages.get(id)?.seq : undefined }

  #setRange(key) {
    this.#range = key
    const newest = this.#picture.newest
    this.#picture.setRange(key === 'all' ? 0 : Math.max(0, newest - Number(key)), newest)
    this.#picture.choose(this.#chosen.user, this.#seqOf(this.#chosen.message))
  }

  // Live events

  #setConnected(isOn, detail) {
    this.#connected.textContent = detail ?? (isOn ? text.tailOn : text.tailOff)
    this.#connected.classList.toggle('on', isOn)
  }

  #received(event) {
    const user = event.user?.id
    const leftOut = ['type', 'cid', 'channel_type', 'channel_id', 'user', 'created_at']
    const fields = Object.entries(event).filter(([name]) => !leftOut.includes(name))
    const line = make(
      'li',
      {},
      time(event.created_at),
      make('b', {}, event.type),
      make('span', {}, user ?? ''),
      make('code', {}, JSON.stringify(Object.fromEntries(fields))),
    )
    if (this.#tail.querySelector('.muted')) this.#tail.replaceChildren()
    this.#tail.prepend(line)
    while (this.#tail.children.length > tailMax) this.#tail.lastElementChild.remove()
    if (event.thread_id !== undefined) return
    switch (event.type) {
      case 'message.read':
      case 'message.delivered': {
        if (!this.#picture.has(user)) return
        const values = { user: event.user }
        if (event.type === 'message.read') {
          // What was marked unread before may be read now.
          Object.assign(values, {
            last_read_seq: event.last_read_seq, last_read_message_id: event.last_read_message_id,
            last_read: event.created_at, unread_epoch: 0,
          })
        }
        const known = this.#picture.valuesOf(user).last_delivered_seq
        values.last_delivered_seq = Math.max(known, event.last_delivered_seq ?? event.last_read_seq)
        this.#picture.show(values)
        if (this.#chosen.message !== undefined) this.#explainSoon()
        break
      }
      case 'message.deleted':
        this.#drop(event.message_id ?? event.message?.id)
        this.#reloadSoon()
        break
      case 'member.removed':
        this.#picture.remove(user ?? event.member?.user?.id)
        this.#reloadSoon()
        break
      case 'channel.truncated':
        this.#messages.clear()
        this.#list.replaceChildren()
        this.#reloadSoon()
        break
      // These move no position.
      case 'message.status':
      case 'message.receipt': return
      default: this.#reloadSoon()
    }
    this.#describe()
  }

  #due = new Set()

  #reloadSoon() { this.#soon('load', () => this.#load()) }
  #explainSoon() { this.#soon('explain', () => this.#explain()) }

  /** At most twice a second, however many events there are. */
  #soon(name, work) {
    if (this.#due.has(name)) return
    this.#due.add(name)
    setTimeout(() => {
      this.#due.delete(name)
      if (!this.#signal.aborted) work().catch((error) => this.#fail(error))
    }, reloadPause)
  }

  // Why isn't this read?

  async #point(user, seq) {
    if (seq === undefined) return this.#choose({ user })
    try {
      const isOfChannel = (message) => message.parent_id === undefined
      await this.#find((message) => isOfChannel(message) && message.seq <= seq)
      const found = [...this.#messages.values()].find((message) => isOfChannel(message) && message.seq === seq)
      if (found) return this.#choose({ user, message: found.id })
      this.#choose({ user, message: undefined })
      this.#tell(make('p', { class: 'muted' }, words.why.notLoaded(seq)))
    } catch (error) {
      this.#fail(error)
    }
  }

  #choose(change) {
    Object.assign(this.#chosen, change)
    const { user, message } = this.#chosen
    for (const entry of this.#list.children) entry.classList.toggle('chosen', entry.dataset.id === message)
    this.#picture.choose(user, this.#seqOf(message))
    this.#explain().catch((error) => {
      if (!this.#hasEnded(error)) this.#tell(make('p', { role: 'alert' }, words.failed(error.message)))
    })
  }

  #tell(...children) { this.#why.replaceChildren(...children.filter(Boolean)) }

  async #explain() {
    const { user, message } = this.#chosen
    if (message === undefined) return this.#tell(make('p', { class: 'muted' }, words.why.choose))
    const base = path`/channels/${this.#cid}/messages/${message}`
    const status = await get(`${base}/status`)
    const shown = [
      make('p', {}, words.why.message, ' ', make('b', {}, message), ': ', words.why.counts(status)),
      this.#memberChoice(user),
    ]
    if (user === undefined) return this.#tell(...shown)
    const [members, { privacy_settings: privacy }] = await Promise.all([
      get(`${base}/members?user_ids=${encodeURIComponent(user)}`), get(path`/users/${user}`),
    ])
    // The list is by falling numbers; replies have numbers of their own.
    await this.#find((one) => one.id === message || (one.parent_id === undefined && one.seq <= status.seq))
    const found = this.#messages.get(message)
    const row = found && (await this.#row(user, found.parent_id, privacy))
    const facts = {
      status, member: members.members[0], sender: found?.user?.id, privacy, row,
      isReply: found && found.parent_id !== undefined,
      markedFrom: row && (await this.#markedFrom(row)),
    }
    if (user !== this.#chosen.user || message !== this.#chosen.message) return
    const entries = reasons(facts).map(({ code, isKnown, ...values }) => {
      if (values.at !== undefined) values.at = timeText(values.at)
      return make(
        'li',
        { class: isKnown ? 'fact' : 'unknown', 'data-code': code },
        !isKnown && make('i', {}, words.why.unknown),
        words.why.reasons[code](values),
      )
    })
    const hint = !found && make('p', { class: 'muted' }, words.why.replyHint)
    this.#tell(...shown, make('ol', { class: 'reasons' }, ...entries), hint)
  }

  /** The member's row as others see it, from the picture. That of a member who hides reads is not used. */
  async #row(user, thread, privacy) {
    if (!privacy.read_receipts.enabled) return undefined
    if (thread === undefined && this.#picture.has(user)) return this.#picture.valuesOf(user)
    const query = thread === undefined ? '' : `?thread_id=${encodeURIComponent(thread)}`
    let next = () => page(`${path`/channels/${this.#cid}/read-state`}${query}`, 'read')
    for (let pages = 0; next && pages < pagesToLookThrough; pages += 1) {
      const rows = await next()
      const found = rows.items.find((row) => row.user.id === user)
      if (found) return found
      next = rows.more
    }
    return undefined
  }

  /** The message from which the member has marked the place unread: their first unread one, if others see it read. */
  async #markedFrom(row) {
    const id = row.first_unread_message_id
    if (!(row.unread_epoch > 0) || id === undefined) return undefined
    try {
      const status = await get(path`/channels/${this.#cid}/messages/${id}/status`)
      return status.seq <= row.last_read_seq ? id : undefined
    } catch (error) {
      if (error instanceof Refused && error.status === 404) return undefined
      throw error
    }
  }

  #memberChoice(user) {
    const field = make('input', {
      type: 'text', 'aria-label': words.why.member, placeholder: words.why.member, value: user ?? '',
      spellcheck: 'false',
    })
    return make('form', { class: 'inline', onsubmit: (event) => {
      event.preventDefault()
      if (field.value !== '') this.#choose({ user: field.value })
    } }, make('label', {}, words.why.member, ' ', field), user !== undefined && link('user', [user], user))
  }
}
