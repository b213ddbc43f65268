import { get, logInWithCode, logInWithToken, logOut, page, path, Refused, session } from './api.js'
import { ChannelView } from './channel.js'
import { make } from './elements.js'
import { link, section } from './parts.js'
import { systemView } from './system.js'
import { typesView } from './types.js'
import { userView } from './user.js'
import { words } from './words.js'

const main = make('main', { tabindex: '-1' })
let rights
let shown = new AbortController()

/** Exchange the link's code, which is not kept in the address, and show the view that the address names. */
async function begin() {
  const code = /^#([0-9a-f]{64})$/.exec(location.hash)?.[1]
  if (code !== undefined) {
    history.replaceState(null, '', '/console')
    try {
      await patiently(() => logInWithCode(code))
    } catch (error) {
      return showLogIn(words.logIn.refused(error.message))
    }
  }
  try {
    rights = await session()
  } catch (error) {
    return showLogIn(words.failed(error.message))
  }
  if (!rights) return showLogIn()
  document.body.replaceChildren(bar(), main)
  await route()
}

/** The code is valid once: a gateway that is busy is asked again. */
async function patiently(request) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await request()
    } catch (error) {
      if (attempt === 5 || !(error instanceof Refused) || (error.status !== 429 && error.status < 500)) throw error
      await new Promise((resolve) => setTimeout(resolve, 1000))
    }
  }
}

/** Show the log-in form if the session has ended; returns whether it has. */
function hasEnded(error) {
  if (!(error instanceof Refused) || error.status !== 401) return false
  rights = undefined
  showLogIn(words.logIn.ended)
  return true
}

function bar() {
  const field = make('input', {
    type: 'text', name: 'find', 'aria-label': words.find.title, placeholder: words.find.field, spellcheck: 'false',
  })
  const find = make('form', { class: 'find', role: 'search', onsubmit: (event) => {
    event.preventDefault()
    if (field.value.trim() !== '') location.hash = `#/find/${encodeURIComponent(field.value)}`
  } }, field, make('button', { class: 'primary' }, words.find.submit))
  const leave = async () => {
    try {
      await logOut()
      rights = undefined
      showLogIn()
    } catch (error) {
      main.replaceChildren(make('p', { role: 'alert', class: 'card' }, words.failed(error.message)))
    }
  }
  return make(
    'header',
    { class: 'bar' },
    make('a', { class: 'mark', href: '#/' }, words.title),
    find,
    make('nav', {}, link('system', [], words.nav.system), link('types', [], words.nav.types)),
    make('span', { class: rights.writes ? 'state alarm' : 'state' }, rights.writes ? words.writes : words.readOnly),
    make('button', { class: 'quiet', onclick: leave }, words.logOut),
  )
}

function showLogIn(notice) {
  shown.abort()
  const token = make('input', { type: 'password', 'aria-label': words.logIn.field, autocomplete: 'off' })
  const problem = make('p', { role: 'alert' }, notice ?? '')
  const submit = async (event) => {
    event.preventDefault()
    try {
      await logInWithToken(token.value.trim())
      token.value = ''
      await begin()
    } catch (error) {
      problem.textContent = words.logIn.refused(error.message)
    }
  }
  const form = make(
    'form',
    { class: 'stack', onsubmit: submit },
    make('label', {}, words.logIn.token, token),
    make('button', { class: 'primary' }, words.logIn.submit),
  )
  document.body.replaceChildren(
    make(
      'main',
      { class: 'notice' },
      make('h1', {}, words.logIn.title),
      make('p', {}, words.logIn.hint),
      problem,
      form,
    ),
  )
}

/**
 * Show the view of the address: `#/channel/CID`, `#/message/CID/ID`, `#/user/ID`, `#/find/TEXT`, `#/system`, `#/types`.
 */
async function route() {
  shown.abort()
  shown = new AbortController()
  const { signal } = shown
  main.setAttribute('aria-busy', 'true')
  try {
    const [view = '', ...ids] = location.hash.replace(/^#\/?/, '').split('/').map(decodeURIComponent)
    const element = await viewNamed(view, ids, signal)
    if (!signal.aborted) main.replaceChildren(element)
  } catch (error) {
    if (signal.aborted || hasEnded(error)) return
    main.replaceChildren(make('p', { role: 'alert', class: 'card' }, words.failed(error.message)))
  } finally {
    if (!signal.aborted) main.removeAttribute('aria-busy')
  }
}

function viewNamed(view, ids, signal) {
  switch (view) {
    case 'channel': return new ChannelView(ids[0], signal, hasEnded).open()
    case 'message': return new ChannelView(ids[0], signal, hasEnded).open(ids[1])
    case 'user': return userView(ids[0], signal)
    case 'types': return typesView(rights.writes)
    case 'find': return findView(ids[0] ?? '')
    default: return systemView(rights.stores, signal, hasEnded)
  }
}

/** What a text may name: a channel, a user, a channel's message. */
async function findView(text) {
  const ask = (request) => request.catch((error) => {
    if (error instanceof Refused && (error.status === 400 || error.status === 404)) return undefined
    throw error
  })
  const space = text.indexOf(' ')
  const [cid, id] = space <= 0 ? [text, undefined] : [text.slice(0, space), text.slice(space + 1)]
  const [channel, channels, status] = await Promise.all([
    ask(get(path`/channels/${text}`)),
    ask(page(path`/users/${text}/channels`, 'channels')),
    id === undefined ? undefined : ask(get(path`/channels/${cid}/messages/${id}/status`)),
  ])
  const { find } = words
  const found = [
    channel && [find.channel, link('channel', [text], text), find.members(channel.channel.member_count)],
    channels?.items.length > 0 && [
      find.user, link('user', [text], text), find.channels(channels.items.length, channels.more !== undefined),
    ],
    status && [find.message, link('message', [cid, id], `${cid} ${id}`), words.why.counts(status)],
  ].filter(Boolean)
  const muted = (child) => make('span', { class: 'muted' }, child)
  const entries = found.map(([kind, target, note]) => make('li', {}, muted(kind), target, muted(note)))
  const answer =
    found.length > 0
      ? make('ol', { class: 'found' }, ...entries)
      : make('p', { class: 'muted' }, find.none(text))
  return section(find.title, answer)
}

addEventListener('hashchange', () => {
  if (/^#[0-9a-f]{64}$/.test(location.hash)) begin()
  else if (rights) route()
})
begin()
