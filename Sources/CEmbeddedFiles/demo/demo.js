/** The demo page: three people, their devices, and what passes on the wire. */
import { people } from '/sdk/tidemark-components.js'
import { Backend } from '/demo/backend.js'
import { Device } from '/demo/device.js'
import { choice, make } from '/demo/elements.js'
import { WatchedTransport, Wire } from '/demo/wire.js'
import { words } from '/demo/words.js'

const sizes = { 3: '3', 25: '25', 100: '100', 500: '500' }
const chosen = { size: 3, rule: 'all' }

people.of = (id) => ({
  name: words.people[id]?.name ?? (id.startsWith('guest-') ? words.guest(Number(id.slice(6))) : id),
})

/** The tokens that `tidemark run` made, for the code in the page's address. */
async function tokens() {
  const code = decodeURIComponent(location.hash.slice(1)) || sessionStorage.getItem('code')
  // The code leaves the address bar and the history; a reload still has it.
  history.replaceState(undefined, '', location.pathname)
  if (!code) throw new Error(words.noCode)
  const response = await fetch('/demo/session', { headers: { authorization: `Bearer ${code}` } }).catch(() => {
    throw new Error(words.broken)
  })
  if (!response.ok) throw new Error(response.status === 401 ? words.noCode : words.broken)
  sessionStorage.setItem('code', code)
  return response.json()
}

const message = (text) => make('p', { class: 'notice', role: 'alert' }, text)

async function show() {
  const { server, ...users } = await tokens()
  const wire = new Wire()
  const backend = new Backend(new WatchedTransport(wire, 'backend'), server)
  const devices = Object.keys(words.people).map((user) => new Device(user, backend, wire, users[user]))
  const again = () => backend.makeGroup(chosen.size, chosen.rule)
  const crowd = make('div', { class: 'crowd' }, ...[[10, words.crowd(10)], [Infinity, words.crowdAll]].map(
    ([count, label]) => make('button', { type: 'button', onclick: () => backend.crowdReads(count) }, label)))
  const tabs = choice({
    legend: words.devices, name: 'device', value: 'alice',
    values: Object.fromEntries(Object.entries(words.people).map(([user, { name }]) => [user, name])),
    choose: (user) => (document.body.dataset.device = user),
  })
  tabs.classList.add('tabs')
  document.body.dataset.device = 'alice'
  backend.on((arrived) => {
    if (arrived) return
    crowd.hidden = backend.group.size === 3
    document.querySelectorAll('[name=size], [name=rule]').forEach((input) => {
      input.checked = input.value === String(backend.group[input.name])
    })
  })
  document.body.append(
    make('header', { class: 'top' },
      make('div', {}, make('h1', {}, words.title), make('p', {}, words.claim)),
      make('div', { class: 'controls' },
        choice({
          legend: words.groupSize, name: 'size', values: sizes, value: String(chosen.size),
          choose: (size) => (chosen.size = Number(size), again()),
        }),
        choice({
          legend: words.rule, name: 'rule', values: words.rules, value: chosen.rule,
          choose: (rule) => (chosen.rule = rule, again()),
        }),
        crowd),
      tabs),
    make('main', {}, make('div', { class: 'stage' }, ...devices.map(({ element }) => element)), wire.element),
  )
  await backend.start(chosen.size, chosen.rule)
  document.body.dataset.state = 'ready'
}

show().catch((error) => document.body.append(message(error.message)))
