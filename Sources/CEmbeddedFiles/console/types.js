import { get, page, path, put } from './api.js'
import { make } from './elements.js'
import { optionsTable, section } from './parts.js'
import { words } from './words.js'

const text = words.types

/**
 * The view of the channel types: each option, its value and what it does; with a field to change it if that is allowed.
 */
export async function typesView(writes) {
  const place = make('div', { class: 'types' })
  const load = async (more) => {
    const types = await (more ?? (() => page('/channel-types', 'channel_types')))()
    place.append(...types.items.map((type) => typeSection(type, writes)))
    if (types.more) await load(types.more)
  }
  await load()
  if (place.children.length === 0) place.append(make('p', { class: 'muted' }, text.none))
  const field = make('input', { type: 'text', 'aria-label': text.other, placeholder: text.other, spellcheck: 'false' })
  const problem = make('span', { role: 'alert', class: 'muted' })
  const show = async (event) => {
    event.preventDefault()
    try {
      place.prepend(typeSection(await get(path`/channel-types/${field.value}`), writes))
      problem.textContent = ''
    } catch (error) {
      problem.textContent = words.failed(error.message)
    }
  }
  place.append(make('form', { class: 'inline', onsubmit: show }, field, make('button', {}, text.show), problem))
  const header = make('header', {}, make('h1', {}, text.title), make('p', { class: 'muted' }, text.hint))
  return make('div', {}, header, place)
}

function typeSection({ type, options }, writes) {
  const show = writes ? (name, value) => editor(type, name, value) : undefined
  return section(type, optionsTable(options, show))
}

function editor(type, name, value) {
  const field = make('input', {
    type: 'text', value: JSON.stringify(value), 'aria-label': text.valueOf(type, name), spellcheck: 'false',
  })
  const state = make('span', { role: 'status', class: 'muted' })
  return make('form', { class: 'inline', onsubmit: async (event) => {
    event.preventDefault()
    try {
      const changed = await put(path`/channel-types/${type}`, { [name]: JSON.parse(field.value) })
      field.value = JSON.stringify(changed.options[name])
      state.textContent = text.saved
    } catch (error) {
      state.textContent = text.refused(error.message)
    }
  } }, field, make('button', {}, text.save), state)
}
