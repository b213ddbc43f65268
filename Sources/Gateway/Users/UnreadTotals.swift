internal import ReceiptModel

/// The unread totals of one user over all their channels (R14).
struct UnreadTotals: Equatable {
  var messages: UInt64 = 0
  /// Channels with unread messages, or flagged unread as a whole.
  var channels: UInt64 = 0
  var threads: UInt64 = 0
  /// Unread messages and replies that mention the user.
  var mentions: UInt64 = 0

  /// Add a channel's counts. Muted channels, their threads and their flag are in no total.
  mutating func add(_ counts: UnreadCounts) {
    guard !counts.isMuted else { return }
    messages += UInt64(counts.messages)
    channels += counts.isUnreadChannel ? 1 : 0
    threads += UInt64(counts.threads)
    mentions += UInt64(counts.mentions)
  }
}

extension UnreadCounts {
  /// Whether the channel counts as unread for the user (R14).
  var isUnreadChannel: Bool { !isMuted && (messages > 0 || isFlagged) }
}
