/// A resolved, absolute assignment to one page (docs/contribute/architecture.md). The shard decides a command into
/// effects, then assigns them to its memory, its log and its pages. Replay therefore decides nothing. Large payloads
/// are indirect: the effect of a mark is a few words, copied without counting a reference. Encodings:
/// Proto/frames.md, "The log and the pages".
///
/// docs/contribute/architecture.md lists the places of a new effect.
package enum Effect: Hashable, Sendable {
  case channel(ChannelNumber, ChannelEffect)
  case shard(ShardEffect)

  /// The channel that this effect belongs to; nil for the shard's own pages.
  package var channel: ChannelNumber? {
    switch self {
    case .channel(let number, _): number
    case .shard: nil
    }
  }

  /// The page this effect is addressed to.
  package var page: PageID {
    switch self {
    case .channel(_, let effect): effect.page
    case .shard(let effect): effect.page
    }
  }

  /// Whether this effect moves a member's watermark.
  package var movesWatermark: Bool {
    switch self {
    case .channel(_, let effect): effect.traits.contains(.movesWatermark)
    case .shard: false
    }
  }

  /// Whether this effect has an id that builds without wide ids (before 0.9.0, see CHANGELOG.md) reject.
  package var hasWideIDs: Bool { ids?.hasWide ?? false }

  /// The id of the user that this effect stores; empty: none. A user's index is stored like a channel, under the user's
  /// id, so a channel gives its cid.
  package var user: String {
    guard let ids else { return "" }
    return ids.name.isEmpty ? ids.user : ids.name
  }

  private var ids: StoredIDs? {
    switch self {
    case .channel(_, let effect): effect.ids
    case .shard(let effect): effect.ids
    }
  }
}

/// The ids that an effect stores; empty: none of that kind.
struct StoredIDs {
  /// The cid of the effect's own channel, or the name of a user's index.
  var name = ""
  var user = ""
  /// The cid of another channel.
  var channel = ""
  var message = ""

  /// Whether builds without wide ids (before 0.9.0, see CHANGELOG.md) reject one of the ids.
  var hasWide: Bool {
    !(all(user, Identifier.isLegacyUser) && all(channel, Identifier.isLegacyCID)
      && all(message, Identifier.isLegacyMessage)
      && all(name, IndexName.isIndex(Array(name.utf8)) ? Identifier.isLegacyUser : Identifier.isLegacyCID))
  }

  /// Return whether an id is empty or satisfies the predicate.
  private func all(_ id: String, _ isInRange: (RawSpan) -> Bool) -> Bool {
    var id = id
    return id.isEmpty || id.withUTF8 { isInRange($0.span.bytes) }
  }
}

/// A page's name within its channel, or within its shard for the last ten cases: the unit of a page write.
package enum PageID: Hashable, Sendable {
  case head
  case rows(UInt32)
  case segment(UInt32)
  /// A message's acknowledgements.
  case acknowledgements(SequenceNumber)
  /// A segment of the steps of a row page: row page, segment. Not loaded with its channel, only on demand.
  case steps(UInt32, UInt32)
  /// Rows of a thread: parent message, page.
  case threadRows(SequenceNumber, UInt32)
  /// Messages of a thread: parent message, segment.
  case threadSegment(SequenceNumber, UInt32)
  /// Entries of a user's channel index.
  case memberships(UInt32)
  case types
  case users(UInt32)
  case shardHead
  /// Pending membership changes.
  case outbox(UInt32)
  /// Progress of the membership changes that were sent and received.
  case index
  /// Remembered webhooks.
  case webhooks(UInt32)
  /// Revoked tokens.
  case tokens
  /// Consumers of the feed.
  case consumers
  /// Pending timers of messages.
  case timers(UInt32)
  /// A push job.
  case pushJob(UInt32)

  /// Whether the page belongs to a channel rather than to its shard.
  package var isOfChannel: Bool {
    switch self {
    case .head, .rows, .segment, .acknowledgements, .steps, .threadRows, .threadSegment, .memberships: true
    case .types, .users, .shardHead, .outbox, .index, .webhooks, .tokens, .consumers, .timers, .pushJob: false
    }
  }

  /// Member rows in one page.
  package static let rowsPerPage: UInt32 = 256
  /// Messages in one segment.
  package static let messagesPerSegment: UInt32 = 256
  /// Users with settings in one page.
  package static let usersPerPage: UInt32 = 256
  /// Channels of a user in one page.
  package static let membershipsPerPage: UInt32 = 256
  /// Number of outbox pages, used as a ring, and the number of changes in each.
  package static let outboxPages: UInt64 = 1_024
  package static let changesPerOutboxPage: UInt64 = 256

  /// Number of pages that remembered webhooks are spread over, by the highest bits of their keys' hashes.
  package static let webhookPages: UInt32 = 256

  /// Return the page of a webhook key.
  package static func webhookPage(of key: UInt64) -> UInt32 { UInt32(key >> 56) }

  /// Timers in one page.
  package static let timersPerPage: UInt64 = 256

  /// Return the page of a timer.
  package static func timerPage(of number: UInt64) -> UInt32 { UInt32(truncatingIfNeeded: number / timersPerPage) }

  /// Return the outbox page that stores a pending change.
  package static func outboxPage(of number: UInt64) -> UInt32 {
    UInt32(number / changesPerOutboxPage % outboxPages)
  }

  /// Return the thread's counterpart of this channel page. Threads have only row and message pages.
  package func inThread(_ parent: SequenceNumber) -> PageID {
    switch self {
    case .rows(let number): .threadRows(parent, number)
    case .segment(let number): .threadSegment(parent, number)
    default: preconditionFailure("a thread has no such page")
    }
  }
}
