/** Types of tidemark.js, which has the documentation of each function. */

/** A channel: `type:id`. */
export type CID = string
/** An RFC 3339 time in UTC. */
export type Time = string

export interface Problem {
  status: number
  code: string
  detail?: string
  retryAfter?: number
}

export class TidemarkError extends Error {
  constructor(problem: Problem)
  readonly status: number
  readonly code: string
  /** Milliseconds. */
  readonly retryAfter?: number
  readonly isTemporary: boolean
}

export interface TransportRequest {
  method: string
  path: string
  headers: Record<string, string>
  body?: string
  signal?: AbortSignal
}

export interface TransportResponse {
  status: number
  header(name: string): string | null
  chunks: AsyncIterable<Uint8Array>
}

export interface Transport {
  open(request: TransportRequest): Promise<TransportResponse>
  /** Drop connections on which nothing arrives. */
  reset?(): void
  close(): void
}

export class FetchTransport implements Transport {
  constructor(url: string)
  open(request: TransportRequest): Promise<TransportResponse>
  reset(): void
  close(): void
}

export class NodeTransport implements Transport {
  /** @param options of `http2.connect` */
  constructor(url: string, options?: object)
  open(request: TransportRequest): Promise<TransportResponse>
  reset(): void
  close(): void
}

/** Keeps unanswered marks. Values are JSON. */
export interface Store {
  /** All entries by rising keys. */
  all(): Promise<[key: string, value: unknown][]>
  put(key: string, value: unknown): Promise<void>
  delete(key: string): Promise<void>
}

export class MemoryStore implements Store {
  all(): Promise<[key: string, value: unknown][]>
  put(key: string, value: unknown): Promise<void>
  delete(key: string): Promise<void>
}

export class IndexedDBStore implements Store {
  constructor(name?: string)
  all(): Promise<[key: string, value: unknown][]>
  put(key: string, value: unknown): Promise<void>
  delete(key: string): Promise<void>
}

/** A member's place. Positions are sequence numbers. The counts are in the own row only. */
export interface Row {
  joined_seq: number
  last_read?: Time
  last_read_message_id?: string
  last_read_seq: number
  last_delivered_at?: Time
  last_delivered_message_id?: string
  last_delivered_seq: number
  unread_messages?: number
  unread_mentions?: number
  first_unread_message_id?: string
  unread_epoch?: number
  marked_unread?: boolean
}

export interface Totals {
  total_unread_count: number
  unread_channels: number
  unread_threads: number
  unread_mentions: number
}

/** A message of a channel, or of the thread of another one (`thread` is that one's id). */
export interface Message {
  cid: CID
  thread?: string
  id?: string
  /** Missing while the backend has not registered it. */
  seq?: number
  /** The sender's id. */
  user?: string
  /** Whether sending has failed. */
  failed?: boolean
}

export interface RegisteredMessage {
  id: string
  seq: number
  user: string
  silent?: boolean
}

export type DeliveryStatus = 'pending' | 'sent' | 'delivered' | 'read' | 'failed'

export interface Refusal {
  kind: 'read' | 'delivered' | 'unread' | 'readAll' | 'acknowledge'
  cid?: CID
  thread?: string
  id?: string
  /** Of acknowledged messages. */
  ids?: string[]
  timestamp?: Time
  code: string
  error: TidemarkError
}

/** An event `message.receipt`: who acknowledged an own message, or that its time is over. */
export interface ReceiptChange {
  cid: CID
  message_id: string
  receipt_status: 'processing' | 'done' | 'expired'
  acknowledged_count: number
  read_count: number
  unread_count: number
  /** Who has caused it; missing where it was not one member. */
  user?: { id: string }
  acknowledged_at?: Time
  note?: string
}

export interface TidemarkEvents {
  change: { cid: CID; thread?: string }
  totals: Totals
  refused: Refusal
  receipt: ReceiptChange
  online: undefined
  offline: unknown
}

export interface TidemarkOptions {
  url: string
  user: string
  tokenProvider: () => string | Promise<string>
  store?: Store
  transport?: Transport
  /** Milliseconds between two reads of a channel or thread; 1000 by default. */
  interval?: number
  random?: () => number
}

export interface Shown {
  cid: CID
  thread?: string
  /** The newest message on the screen. */
  messageId?: string
}

/** A member in a list of a message. Which times there are depends on the list. */
export interface ListedMember {
  user: { id: string }
  read_at?: Time
  delivered_at?: Time
  acknowledged_at?: Time
  /** Whether the time is exact. */
  exact?: boolean
  note?: string
}

export type MemberList = 'readers' | 'delivered' | 'unread' | 'acknowledged' | 'unacknowledged'

export class Tidemark {
  constructor(options: TidemarkOptions)
  readonly user: string
  readonly totals: Totals | undefined
  readonly pending: number

  on<Type extends keyof TidemarkEvents>(type: Type, listener: (value: TidemarkEvents[Type]) => void): () => void
  start(): Promise<void>
  /** Connect and send now, not after the present pause. In browsers the `online` event does it. */
  reconnect(): void
  close(): Promise<void>

  open(cid: CID, thread?: string): Promise<void>
  openAll(cids: CID[]): Promise<void>
  forget(cid: CID, thread?: string): void
  show(cid: CID, messages: RegisteredMessage[], thread?: string): Promise<void>

  readState(cid: CID, thread?: string): ReadonlyMap<string, Row> | undefined
  countUnread(cid: CID, thread?: string): number | undefined
  lastReadMessageId(cid: CID, thread?: string): string | undefined
  firstUnreadMessageId(cid: CID, thread?: string): string | undefined
  unreadWhenOpened(cid: CID, thread?: string): { messageId?: string; count?: number } | undefined
  readersFor(message: Message): string[]
  deliveredFor(message: Message): string[]
  deliveredNotReadFor(message: Message): string[]
  hasUserRead(message: Message, user: string): boolean
  deliveryStatus(message: Message): DeliveryStatus
  receiptsShown(cid: CID, thread?: string): { read: boolean; delivered: boolean }
  listMembers(
    message: { cid: CID; id: string },
    list: MemberList,
    page?: { cursor?: string; limit?: number; order?: 'joined' | 'time' | 'time_desc' },
  ): Promise<{ members: ListedMember[]; total?: number; next?: string }>

  markRead(cid: CID, messageId?: string, thread?: string): void
  markDelivered(cid: CID, messageId: string, thread?: string): void
  markUnread(cid: CID, from?: { messageId?: string; timestamp?: Time; thread?: string }): void
  markAllRead(options?: { threads?: boolean }): void
  acknowledge(cid: CID, messageIds: string[], note?: string): void
  setReceipts(settings: { read?: boolean; delivered?: boolean }): Promise<void>
  autoRead(policy: () => Shown | undefined): () => void
}

export function ackTicket(ticket: string, options: { url: string; transport?: Transport }): Promise<boolean>
