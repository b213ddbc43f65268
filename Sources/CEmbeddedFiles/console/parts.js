import { make } from './elements.js'
import { words } from './words.js'

const svgSpace = 'http://www.w3.org/2000/svg'

/** Make an SVG element. */
export function draw(name, attributes = {}, ...children) {
  const element = document.createElementNS(svgSpace, name)
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value)
  element.append(...children)
  return element
}

/** A link to a view of the console: its name, then ids. */
export function link(view, ids, ...children) {
  return make('a', { href: `#/${[view, ...ids].map(encodeURIComponent).join('/')}` }, ...children)
}

/** A section with a heading. */
export function section(title, ...children) {
  return make('section', { class: 'card' }, make('h2', {}, title), ...children)
}

/** A table with a heading for each column. */
export function table(headings, rows) {
  return make(
    'div',
    { class: 'scroll' },
    make(
      'table',
      {},
      make('thead', {}, make('tr', {}, ...headings.map((text) => make('th', { scope: 'col' }, text)))),
      make('tbody', {}, ...rows.map((cells) => make('tr', {}, ...cells.map((cell) => make('td', {}, cell))))),
    ),
  )
}

/** A button for the next page, if there is one. */
export function offer(place, more, load) {
  place.replaceChildren(...(more ? [make('button', { onclick: () => load(more) }, words.more)] : []))
}

/** Options of a channel or a channel type, with what each does. `show` makes the element of a value. */
export function optionsTable(options, show = (name, value) => make('code', {}, JSON.stringify(value))) {
  const { option, value: heading, effect, effects } = words.types
  const rows = Object.entries(options).map(([name, value]) => [
    make('code', {}, name), show(name, value), effects[name] ?? '',
  ])
  return table([option, heading, effect], rows)
}

const timeFormat = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' })

/** A time for people; the machine's text is its title. */
export function time(text) {
  if (text === undefined) return ''
  return make('time', { datetime: text, title: text }, timeText(text))
}

export function timeText(text) { return text === undefined ? '' : timeFormat.format(new Date(text)) }
