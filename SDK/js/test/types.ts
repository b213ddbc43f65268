// What an app writes, compiled with the types of tidemark.js.
import { ackTicket, MemoryStore, NodeTransport, Tidemark, TidemarkError } from '../tidemark.js'
import type { DeliveryStatus, Message, Row } from '../tidemark.js'
import { people, provide, words } from '../tidemark-components.js'
import type { TidemarkWorkerOptions } from '../tidemark-sw.js'

const tidemark = new Tidemark({
  url: 'https://chat.example.com',
  user: 'alice',
  tokenProvider: async () => 'token',
  store: new MemoryStore(),
  transport: new NodeTransport('https://chat.example.com', { ca: 'pem' }),
})

export async function show(message: Message): Promise<string> {
  await tidemark.start()
  await tidemark.open(message.cid)
  const status: DeliveryStatus = tidemark.deliveryStatus(message)
  const rows: ReadonlyMap<string, Row> | undefined = tidemark.readState(message.cid)
  const stop = tidemark.on('change', ({ cid, thread }) => console.log(cid, thread, rows?.size))
  tidemark.on('totals', (totals) => console.log(totals.total_unread_count))
  tidemark.on('refused', ({ kind, error }) => console.log(kind, error instanceof TidemarkError && error.isTemporary))
  tidemark.markRead(message.cid, message.id)
  tidemark.markDelivered(message.cid, 'm1')
  tidemark.markUnread(message.cid, { timestamp: '2026-01-01T00:00:00Z' })
  tidemark.markAllRead({ threads: true })
  tidemark.autoRead(() => ({ cid: message.cid, messageId: 'm2' }))
  tidemark.on('receipt', ({ message_id, acknowledged_count }) => console.log(message_id, acknowledged_count))
  const { members, next } = await tidemark.listMembers({ cid: message.cid, id: 'm1' }, 'readers', { limit: 10 })
  console.log(members.map(({ user, read_at }) => `${user.id} ${read_at}`), next)
  console.log(tidemark.unreadWhenOpened(message.cid)?.messageId, tidemark.receiptsShown(message.cid).read)
  stop()
  const isValid: boolean = await ackTicket('ticket', { url: 'https://chat.example.com' })
  // @ts-expect-error a message has a channel
  tidemark.deliveryStatus({ seq: 1 })
  return `${status} ${isValid} ${tidemark.readersFor(message).length}`
}

export function showElements(message: Message): HTMLElement {
  provide(tidemark)
  Object.assign(words, { read: 'Gelesen' })
  people.of = (id) => ({ name: id.toUpperCase(), picture: `https://chat.example.com/${id}.png` })
  const ticks = document.createElement('tidemark-ticks')
  ticks.message = message
  return ticks
}

export const worker: TidemarkWorkerOptions = { url: 'https://chat.example.com', ticketOf: ({ push }) => push.ticket }
