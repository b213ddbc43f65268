import { get, metrics, Refused } from './api.js'
import { choice, make } from './elements.js'
import { draw, section, table, time } from './parts.js'
import { words } from './words.js'

const text = words.system
const interval = 2000
const consumersInterval = 5000
const samplesMin = 30
const samplesMax = 150
const width = 150
const shards = 'tidemark_gateway_store_shards'

/** Each chart of a gateway: its name, the value of two scrapes, and its unit. */
const gatewayCharts = [
  ['shards', (now) => sumOf(now, shards) - sumOf(now, `${shards}_unserved`), ''],
  ['requests', rate('tidemark_gateway_requests_total'), text.perSecond],
  ['store', rate('tidemark_gateway_store_requests_total'), text.perSecond],
  ['roundTrip', mean('tidemark_gateway_store_round_trip_seconds', 1000), text.milliseconds],
  ['inFlight', gauge('tidemark_gateway_store_requests_in_flight'), ''],
  ['events', rate('tidemark_gateway_events_written_total'), text.perSecond],
  ['streams', gauge('tidemark_gateway_event_streams'), ''],
  ['connections', gauge('tidemark_gateway_connections'), ''],
  ['memory', gauge('process_resident_memory_bytes', 1 / (1 << 20)), text.mebibytes],
  [
    'refused',
    rate('tidemark_gateway_rate_limited_total', 'tidemark_gateway_connections_refused_total'),
    text.perSecond,
  ],
  ['lost', gauge('tidemark_gateway_store_connections_lost_total'), ''],
]

/** The same of a store, or of a node of a cluster. */
const storeCharts = [
  ['requests', rate('tidemark_store_requests_total'), text.perSecond],
  ['commits', rate('tidemark_store_commits_total'), text.perSecond],
  ['failedCommits', gauge('tidemark_store_failed_commits_total'), ''],
  ['events', rate('tidemark_store_events_sent_total'), text.perSecond],
  ['channels', gauge('tidemark_store_loaded_channels'), ''],
  ['channelMemory', gauge('tidemark_store_resident_bytes', 1 / (1 << 20)), text.mebibytes],
  ['memory', gauge('process_resident_memory_bytes', 1 / (1 << 20)), text.mebibytes],
  ['groups', optional('tidemark_store_owned_groups'), ''],
  ['lag', mean('tidemark_store_follow_age_seconds', 1000), text.milliseconds],
]

function sumOf(scrape, ...names) { return names.reduce((total, name) => total + (scrape.values.get(name) ?? 0), 0) }

/** A gauge that only some processes have. */
function optional(name) { return (now) => now.values.get(name) }

function gauge(name, factor = 1) { return (now) => sumOf(now, name) * factor }

function rate(...names) {
  return (now, before) => before && Math.max(0, (sumOf(now, ...names) - sumOf(before, ...names)) / (now.at - before.at))
}

function mean(name, factor) {
  return (now, before) => {
    const grown = (suffix) => sumOf(now, `${name}_${suffix}`) - sumOf(before, `${name}_${suffix}`)
    const count = before && grown('count')
    return count > 0 ? (grown('sum') / count) * factor : undefined
  }
}

/**
 * Parse metrics of the Prometheus text format: the sum over all labels, by name. Buckets of histograms are left out.
 */
export function parse(lines) {
  const values = new Map()
  for (const line of lines.split('\n')) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{.*\})? (\S+)$/.exec(line)
    if (!found || found[1].endsWith('_bucket')) continue
    values.set(found[1], (values.get(found[1]) ?? 0) + Number(found[2]))
  }
  return values
}

/**
 * The view of the processes: the figures of the gateway or of a store since it was opened, drawn every two seconds.
 *
 * @param stores addresses of the stores whose figures there are
 */
export function systemView(stores, signal, hasEnded) {
  const place = make('div', {})
  let shown = new AbortController()
  const show = (key) => {
    shown.abort()
    shown = new AbortController()
    const ends = AbortSignal.any([signal, shown.signal])
    place.replaceChildren(panel(key === 'gateway' ? undefined : Number(key.slice('store-'.length)), ends, hasEnded))
  }
  const values = { gateway: text.gateway }
  stores.forEach((address, number) => { values[`store-${number}`] = address })
  const process = choice({ legend: text.process, name: 'process', values, value: 'gateway', choose: show })
  show('gateway')
  const figures = section(text.title, stores.length > 0 && process, place)
  return make('div', {}, figures, consumersPanel(signal, hasEnded))
}

/** The consumers of the change feed, each with its partitions; nothing if the store keeps no feed. */
function consumersPanel(signal, hasEnded) {
  const place = make('div', {})
  const panel = section(text.consumers.title, make('p', { class: 'muted' }, text.consumers.hint), place)
  panel.classList.add('consumers')
  panel.hidden = true
  const load = async () => {
    try {
      const { consumers } = await get('/feed/consumers', { signal })
      const rows = consumers.flatMap((consumer) => consumer.partitions.map((partition) => [
        consumer.name, partition.partition, `${partition.lag_records}`, text.consumers.seconds(partition.lag_seconds),
        time(partition.committed_at),
      ]))
      panel.hidden = false
      place.replaceChildren(rows.length > 0 ? table(text.consumers.columns, rows) : text.consumers.none)
    } catch (error) {
      if (signal.aborted || hasEnded(error)) return
      // feed_off: there is nothing to show until the store is restarted.
      if (error instanceof Refused && error.status === 409) return
      place.replaceChildren(text.stale(error.message))
    }
    if (!signal.aborted) setTimeout(load, consumersInterval)
  }
  load()
  return panel
}

function panel(store, signal, hasEnded) {
  const charts = store === undefined ? gatewayCharts : storeCharts
  const drawn = charts.map(([name, value, unit]) => new Chart(text.charts[name], value, unit))
  const state = make('p', { role: 'status', class: 'muted' }, text.hint)
  let before
  const scrape = async () => {
    try {
      const now = { at: performance.now() / 1000, values: parse(await metrics(store, signal)) }
      for (const chart of drawn) chart.add(now, before)
      before = now
      state.textContent = text.hint
    } catch (error) {
      if (signal.aborted || hasEnded(error)) return
      state.textContent = text.stale(error.message)
    }
    if (!signal.aborted) setTimeout(scrape, interval)
  }
  scrape()
  const elements = drawn.map((chart) => chart.element)
  return make('div', { class: 'panel' }, state, make('div', { class: 'charts' }, ...elements))
}

class Chart {
  #value
  #unit
  #samples = []
  #now = make('output', {})
  #line = draw('polyline', { fill: 'none' })
  #area = draw('polygon', {})
  element

  constructor(title, value, unit) {
    this.#value = value
    this.#unit = unit
    const attributes = { viewBox: `0 0 ${width} 40`, preserveAspectRatio: 'none', 'aria-hidden': 'true' }
    const picture = draw('svg', attributes, this.#area, this.#line)
    // A process has only some of the figures.
    this.element = make('figure', { class: 'chart', hidden: true }, make('figcaption', {}, title), this.#now, picture)
  }

  add(now, before) {
    const value = this.#value(now, before)
    if (value === undefined) return
    this.element.hidden = false
    this.#samples.push(value)
    if (this.#samples.length > samplesMax) this.#samples.shift()
    this.#now.textContent = `${format(value)} ${this.#unit}`
    const highest = Math.max(...this.#samples, 1e-9)
    // A minute fills the width at first, and five minutes in the end.
    const step = width / Math.max(this.#samples.length - 1, samplesMin - 1)
    const start = width - step * (this.#samples.length - 1)
    const points = this.#samples.map((sample, index) => {
      const x = start + index * step
      const y = 38 - (sample / highest) * 34
      return `${x.toFixed(1)},${y.toFixed(1)}`
    })
    this.#line.setAttribute('points', points.join(' '))
    this.#area.setAttribute('points', [`${start.toFixed(1)},40`, ...points, `${width},40`].join(' '))
  }
}

function format(value) {
  return value.toLocaleString(undefined, { maximumFractionDigits: value >= 100 ? 0 : value >= 10 ? 1 : 2 })
}
