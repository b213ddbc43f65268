import { get, page, path } from './api.js'
import { make } from './elements.js'
import { link, offer, section, table, time } from './parts.js'
import { words } from './words.js'

const text = words.user

/** The view of a user: what is unread, by channel and thread, and the user's settings. */
export async function userView(user, signal) {
  const [unread, threads, channels, settings] = await Promise.all([
    page(path`/users/${user}/unread`, 'channels'),
    page(`${path`/users/${user}/threads`}?unread=true`, 'threads'),
    page(path`/users/${user}/channels`, 'channels'),
    get(path`/users/${user}`, { signal }),
  ])
  const { total_unread_count, unread_channels, unread_threads, unread_mentions } = unread.answer
  const totals = [
    [text.messages, total_unread_count], [text.channels, unread_channels],
    [text.threads, unread_threads], [text.mentions, unread_mentions],
  ]
  const privacy = settings.privacy_settings
  const hasThreads = privacy.read_receipts.enabled && threads.items.length > 0
  return make(
    'div',
    { class: 'user' },
    make('header', {}, make('h1', {}, user), make('p', { class: 'muted' },
      `${text.showsReads(privacy.read_receipts.enabled)}, ${text.showsDeliveries(privacy.delivery_receipts.enabled)}`)),
    !privacy.read_receipts.enabled && section(text.totals, make('p', { class: 'muted' }, text.hidden)),
    privacy.read_receipts.enabled && section(text.totals,
      make('dl', { class: 'totals' }, ...totals.map(([name, count]) =>
        make('div', {}, make('dt', {}, name), make('dd', {}, `${count}`)))),
      list(unread, [text.channel, text.messages, text.mentions, text.lastRead], (entry) => [
        link('channel', [entry.cid], entry.cid), `${entry.unread_messages}`, `${entry.unread_mentions}`,
        entry.last_read_message_id === undefined ? text.never : time(entry.last_read),
      ])),
    hasThreads && section(text.threadsTitle,
      list(threads, [text.channel, text.threads, text.messages], (entry) => [
        link('channel', [entry.cid], entry.cid), link('message', [entry.cid, entry.thread_id], entry.thread_id),
        `${entry.unread_messages}`,
      ])),
    section(text.all, list(channels, [text.channel], (entry) => [link('channel', [entry.cid], entry.cid)])),
  )
}

/** A table of a paged list, with a button for the next page. */
function list(first, headings, cells) {
  if (first.items.length === 0) return make('p', { class: 'muted' }, text.none)
  const whole = table(headings, first.items.map(cells))
  const body = whole.querySelector('tbody')
  const place = make('p', {})
  const load = async (more) => {
    const next = await more()
    for (const entry of next.items) body.append(make('tr', {}, ...cells(entry).map((cell) => make('td', {}, cell))))
    offer(place, next.more, load)
  }
  offer(place, first.more, load)
  return make('div', {}, whole, place)
}
