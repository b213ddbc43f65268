/** Types of tidemark-components.js, which has the documentation of each element. */

import type { MemberList, Message, Tidemark } from './tidemark.js'

export interface Words {
  pending: string
  sent: string
  delivered: string
  read: string
  failed: string
  readBy: (count: number) => string
  unread: (count: number) => string
  markedUnread: string
  readers: (names: string[], more: number) => string
  nobody: string
  more: (count: number) => string
  title: string
  close: string
  lists: Record<MemberList, string>
  empty: string
  loading: string
  loadMore: string
  again: string
  time: (date: Date | undefined) => string
}

/** All words that the elements show or speak. */
export const words: Words

export interface Person {
  name: string
  /** Address of a picture. */
  picture?: string
}

/** Names and pictures of users, by id. */
export const people: { of: (id: string) => Person | undefined }

/** Give the client to all elements of the page that have no `client` of their own. */
export function provide(tidemark: Tidemark): void

declare class TidemarkElement extends HTMLElement {
  client: Tidemark | undefined
  get message(): Message
  set message(message: Message)
}

export class TidemarkTicks extends TidemarkElement {}
export class TidemarkReaders extends TidemarkElement {
  openSheet(): void
}
export class TidemarkUnreadDivider extends TidemarkElement {}
export class TidemarkBadge extends TidemarkElement {}

declare global {
  interface HTMLElementTagNameMap {
    'tidemark-ticks': TidemarkTicks
    'tidemark-readers': TidemarkReaders
    'tidemark-unread-divider': TidemarkUnreadDivider
    'tidemark-badge': TidemarkBadge
  }
}
