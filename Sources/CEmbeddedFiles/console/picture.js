import { make } from './elements.js'
import { words } from './words.js'

/**
 * The read vector of a channel as a picture: a row for each member, messages from left to right, and the edges of what
 * was read and delivered. `choose(user, seq)` is called with what a person points at.
 */
export class Picture {
  #rows = new Map()
  #body = make('tbody', {})
  #axis = make('div', { class: 'axis' })
  #choose
  first = 0
  newest = 0
  element

  constructor(choose) {
    this.#choose = choose
    const { member, read, delivered } = words.channel
    const head = [member, this.#axis, read, delivered].map((text) => make('th', { scope: 'col' }, text))
    const table = make('table', { class: 'picture' }, make('thead', {}, make('tr', {}, ...head)), this.#body)
    this.element = make('div', { class: 'scroll' }, table)
  }

  /** Show the messages behind `first` up to the newest one. */
  setRange(first, newest) {
    this.first = Math.min(first, newest)
    this.newest = newest
    this.#axis.replaceChildren(make('span', {}, `${this.first}`), make('span', {}, `${newest}`))
    for (const row of this.#rows.values()) this.#place(row)
  }

  /** Show a member's row, or what has changed of it. */
  show(values) {
    const user = values.user.id
    const row = this.#rows.get(user) ?? this.#make(user)
    Object.assign(row.values, values)
    this.#place(row)
  }

  has(user) { return this.#rows.has(user) }
  valuesOf(user) { return this.#rows.get(user)?.values }
  remove(user) {
    this.#rows.get(user)?.element.remove()
    this.#rows.delete(user)
  }

  /** Mark the chosen member, and the chosen message by its number. */
  choose(user, seq) {
    for (const [id, row] of this.#rows) row.element.classList.toggle('chosen', id === user)
    const isShown = seq !== undefined && seq > this.first && seq <= this.newest
    this.element.classList.toggle('pointed', isShown)
    if (isShown) this.element.style.setProperty('--pointer', `${this.#share(seq) * 100}%`)
  }

  #make(user) {
    const track = make('div', { class: 'track', role: 'img', onclick: (event) => this.#pointed(user, track, event) })
    const kinds = ['delivered', 'read', 'joined']
    const parts = Object.fromEntries(kinds.map((kind) => [kind, make('span', { class: kind })]))
    track.append(...Object.values(parts))
    const cells = Array.from({ length: 2 }, () => make('td', { class: 'number' }))
    const name = make('button', { class: 'name', onclick: () => this.#choose(user) }, user)
    const element = make('tr', {}, make('th', { scope: 'row' }, name), make('td', {}, track), ...cells)
    const row = { element, track, parts, cells, values: {} }
    this.#rows.set(user, row)
    this.#body.append(element)
    return row
  }

  #pointed(user, track, event) {
    const box = track.getBoundingClientRect()
    const share = (event.clientX - box.left) / box.width
    const isRightToLeft = getComputedStyle(track).direction === 'rtl'
    const seq = this.first + Math.ceil((isRightToLeft ? 1 - share : share) * (this.newest - this.first))
    this.#choose(user, Math.max(seq, this.first + 1))
  }

  #share(seq) {
    const count = this.newest - this.first
    return count === 0 ? 0 : Math.min(Math.max((seq - this.first) / count, 0), 1)
  }

  #place({ values, track, parts, cells }) {
    const ends = { delivered: values.last_delivered_seq, read: values.last_read_seq, joined: values.joined_seq }
    for (const [name, part] of Object.entries(parts)) {
      part.style.setProperty('inline-size', `${this.#share(ends[name] ?? 0) * 100}%`)
    }
    track.setAttribute('aria-label', words.channel.row(values.user.id, ends.read, ends.delivered, this.newest))
    // A count of unread messages would tell what a member hides.
    const texts = [ends.read, ends.delivered]
    cells.forEach((cell, index) => { cell.textContent = `${texts[index]}` })
  }
}
