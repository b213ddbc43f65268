import { follow, get, page, path, Refused } from './api.js'
import { choice, make } from './elements.js'
import { link, section, table, time, timeText } from './parts.js'
import { Picture } from './picture.js'
import { reasons } from './why.js'
import { words } from './words.js'

const text = words.channel
const tailMax = 200
const pagesToLookThrough = 10

/** The view of a channel: its read vector, its messages, its live events, and why a message is not read. */
export class ChannelView {
  #cid
  #signal
  #channel
  #picture
  #range = '50'
  #messages = new Map()
  #chosen = { user: undefined, message: undefined }
  #count = make('span', {})
  #moreRows = make('p', {})
  #list = make('ol', { class: 'messages' })
  #moreMessages = make('p', {})
  #tail = make('ol', { class: 'tail', 'aria-live': 'polite' })
  #connected = make('span', { class: 'state' }, text.tailOff)
  #why = make('div', { class: 'why' }, make('p', { class: 'muted' }, words.why.choose))

  constructor(cid, signal) {
    this.#cid = cid
    this.#signal = signal
    this.#picture = new Picture((user, seq) => this.#point(user, seq))
  }

  /** Load the channel, and return the view. */
  async open(messageID) {
    this.#channel = (await get(path`/channels/${this.#cid}`, { signal: this.#signal })).channel
    this.#picture.setRange(0, this.#channel.newest_message?.seq ?? 0)
    await Promise.all([this.#loadRows(), this.#loadMessages()])
    this.#setRange(this.#range)
    follow(this.#cid, (event) => this.#received(event), (isOn) => this.#setConnected(isOn), this.#signal).catch(
      (error) => this.#setConnected(false, error.message),
    )
    if (messageID !== undefined) this.#choose({ message: messageID })
    this.#describe()
    return make(
      'div',
      { class: 'channel' },
      make('header', {}, make('h1', {}, this.#cid), make('p', { class: 'muted' }, this.#count)),
      make('div', { class: 'columns' }, this.#pictureSection(), this.#whySection(), this.#messagesSection(), this.#tailSection()),
      this.#optionsSection(),
    )
  }

  #pictureSection() {
    const range = choice({
      legend: text.range, name: 'range', values: text.ranges, value: this.#range, choose: (key) => this.#setRange(key),
    })
    return section(text.picture, make('p', { class: 'muted' }, text.pictureHint), range, this.#picture.element, this.#moreRows)
  }

  #whySection() { return section(words.why.title, this.#why) }
  #messagesSection() { return section(text.messages, this.#list, this.#moreMessages) }
  #tailSection() { return section(text.tail, this.#connected, this.#tail) }

  #optionsSection() {
    const rows = Object.entries(this.#channel.options).map(([name, value]) => [
      make('code', {}, name), make('code', {}, JSON.stringify(value)), words.types.effects[name] ?? '',
    ])
    const { option, value, effect } = words.types
    return make('details', { class: 'card' }, make('summary', {}, text.options), table([option, value, effect], rows))
  }

  #describe() {
    const newest = this.#picture.newest
    this.#count.textContent = `${text.members(this.#channel.member_count)}, ${newest === 0 ? text.empty : text.newest(newest)}`
  }

  // Rows and messages

  async #loadRows(more) {
    const rows = await (more ?? (() => page(path`/channels/${this.#cid}/read-state`, 'read')))()
    if (!more) this.#picture.clear()
    for (const row of rows.items) this.#picture.show(row)
    this.#offer(this.#moreRows, rows.more, (next) => this.#loadRows(next))
    this.#picture.choose(this.#chosen.user, this.#seqOf(this.#chosen.message))
  }

  async #loadMessages(more) {
    const messages = await (more ?? (() => page(path`/channels/${this.#cid}/messages?limit=30`, 'messages')))()
    if (!more) this.#list.replaceChildren()
    for (const message of messages.items) this.#list.append(this.#entry(message))
    this.#offer(this.#moreMessages, messages.more, (next) => this.#loadMessages(next))
    return messages
  }

  #offer(place, more, load) {
    place.replaceChildren(...(more ? [make('button', { onclick: () => load(more) }, text.more)] : []))
  }

  #entry(message) {
    this.#messages.set(message.id, message)
    const sender = message.user ? text.by(message.user.id) : text.nobody
    const notes = [sender, message.silent && text.silent, message.receipt && text.asks].filter(Boolean).join(', ')
    const button = make(
      'button',
      { class: 'message', onclick: () => this.#choose({ message: message.id }) },
      make('span', { class: 'number' }, `${message.seq}`), make('b', {}, message.id), make('span', { class: 'muted' }, notes),
    )
    return make('li', { 'data-id': message.id }, button)
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
    const fields = Object.entries(event).filter(([name]) => !['type', 'cid', 'channel_type', 'channel_id', 'user', 'created_at'].includes(name))
    const line = make('li', {}, time(event.created_at), make('b', {}, event.type), make('span', {}, user ?? ''), make('code', {}, JSON.stringify(Object.fromEntries(fields))))
    this.#tail.prepend(line)
    while (this.#tail.children.length > tailMax) this.#tail.lastElementChild.remove()
    if (event.thread_id !== undefined) return
    switch (event.type) {
      case 'message.read':
      case 'message.delivered': {
        if (!this.#picture.has(user)) return
        const names = event.type === 'message.read' ? ['last_read_seq', 'last_read_message_id'] : []
        const values = Object.fromEntries(names.map((name) => [name, event[name]]))
        const delivered = Math.max(this.#picture.valuesOf(user).last_delivered_seq, event.last_delivered_seq ?? event.last_read_seq)
        this.#picture.show({ user: event.user, ...values, last_delivered_seq: delivered })
        break
      }
      case 'message.new': {
        const message = event.message ?? event
        const seq = message.seq ?? event.seq
        if (seq !== undefined && seq > this.#picture.newest) this.#picture.newest = seq
        this.#setRange(this.#range)
        this.#reloadSoon()
        break
      }
      // These move no position.
      case 'message.status':
      case 'message.receipt': return
      default: this.#reloadSoon()
    }
    this.#describe()
  }

  #reload
  #reloadSoon() {
    clearTimeout(this.#reload)
    this.#reload = setTimeout(async () => {
      if (this.#signal.aborted) return
      try {
        this.#channel = (await get(path`/channels/${this.#cid}`, { signal: this.#signal })).channel
        this.#picture.setRange(this.#picture.first, this.#channel.newest_message?.seq ?? 0)
        await Promise.all([this.#loadRows(), this.#loadMessages()])
        this.#setRange(this.#range)
        this.#describe()
      } catch (error) {
        if (!this.#signal.aborted) this.#setConnected(false, error.message)
      }
    }, 500)
  }

  // Why isn't this read?

  #point(user, seq) {
    const message = seq === undefined ? this.#chosen.message : [...this.#messages.values()].find((one) => one.seq === seq && one.parent_id === undefined)?.id
    this.#choose({ user, message: message ?? this.#chosen.message })
  }

  #choose(change) {
    Object.assign(this.#chosen, change)
    const { user, message } = this.#chosen
    for (const entry of this.#list.children) entry.classList.toggle('chosen', entry.dataset.id === message)
    this.#picture.choose(user, this.#seqOf(message))
    this.#explain().catch((error) => this.#tell(make('p', { role: 'alert' }, words.failed(error.message))))
  }

  #tell(...children) { this.#why.replaceChildren(...children.filter(Boolean)) }

  async #find(id) {
    let found = this.#messages.get(id)
    let next = () => page(path`/channels/${this.#cid}/messages`, 'messages')
    for (let pages = 0; !found && next && pages < pagesToLookThrough; pages += 1) {
      const messages = await next()
      found = messages.items.find((message) => message.id === id)
      next = messages.more
    }
    return found
  }

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
    const [members, privacy, found] = await Promise.all([
      get(`${base}/members?user_ids=${encodeURIComponent(user)}`), get(path`/users/${user}`), this.#find(message),
    ])
    const facts = {
      status, member: members.members[0], sender: found?.user?.id, privacy: privacy.privacy_settings,
      row: found && (await this.#row(user, found.parent_id, privacy.privacy_settings)),
    }
    if (user !== this.#chosen.user || message !== this.#chosen.message) return
    const entries = reasons(facts).map(({ code, isKnown, ...values }) => {
      if (values.at !== undefined) values.at = timeText(values.at)
      return make('li', { class: isKnown ? 'fact' : 'unknown', 'data-code': code }, !isKnown && make('i', {}, words.why.unknown), words.why.reasons[code](values))
    })
    this.#tell(...shown, make('ol', { class: 'reasons' }, ...entries), !found && make('p', { class: 'muted' }, words.why.replyHint))
  }

  /** The member's row as others see it. That of a member who hides reads is not asked for. */
  async #row(user, thread, privacy) {
    if (!privacy.read_receipts.enabled) return undefined
    const known = thread === undefined ? this.#picture.valuesOf(user) : undefined
    if (known) return known
    try {
      const query = thread === undefined ? '' : `&thread_id=${encodeURIComponent(thread)}`
      const rows = await page(`${path`/channels/${this.#cid}/read-state`}?limit=1&user_id=${encodeURIComponent(user)}${query}`, 'read')
      return rows.items.find((row) => row.user.id === user)
    } catch (error) {
      if (error instanceof Refused) return undefined
      throw error
    }
  }

  #memberChoice(user) {
    const field = make('input', { type: 'text', 'aria-label': words.why.member, placeholder: words.why.member, value: user ?? '', spellcheck: 'false' })
    return make('form', { class: 'inline', onsubmit: (event) => {
      event.preventDefault()
      if (field.value !== '') this.#choose({ user: field.value })
    } }, make('label', {}, words.why.member, ' ', field), user !== undefined && link('user', [user], user))
  }
}
