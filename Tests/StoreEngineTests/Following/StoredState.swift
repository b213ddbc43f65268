import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine

/// The content of a storage after all pages are written, in a form in which an owner and its followers are equal.
///
/// Left out is what an owner knows and does not log: the log index and time of each page, counters of commands without
/// effects, hints for peeks, and expired webhooks and tokens. The types page has the order in which channels were
/// loaded.
/// A truncation changes the head page only: whether a segment was written before or after it depends on the member, so
/// truncated messages are left out.
struct StoredState {
  private(set) var pages: [PageKey: [Effect]] = [:]
  private(set) var sessions: [ShardID: [SessionID: SessionRecord]] = [:]
  private(set) var directory: [[UInt8]: ChannelNumber] = [:]
  private(set) var logLength = 0

  /// - Parameter time: webhooks and tokens that expire before this are left out.
  init(_ storage: MemoryStorage, at time: Int64) throws {
    directory = storage.directory
    logLength = storage.log.values.reduce(0) { $0 + $1.count }
    for (key, bytes) in storage.pages {
      var effects: [Effect] = []
      for effect in try Page(bytes.readableBytesSpan).effects {
        switch effect {
        case .shard(.sessionAssigned(let record)):
          sessions[key.shard, default: [:]][record.session] = record
        case .shard(.countersAssigned(let next, _)):
          effects.append(.shard(.countersAssigned(nextChannel: next, time: .none)))
        // A hint that memory keeps for a mention or a sender that is gone, until the channel is loaded again.
        case .channel(_, .segmentFlagsAssigned): break
        case .shard(.webhookNoted(_, let until)) where until.milliseconds < time: break
        case .shard(.tokenRevoked(let revocation))
        where revocation.until != .none && revocation.until.milliseconds < time:
          break
        default: effects.append(effect)
        }
      }
      if key.page == .types { effects.sort { "\($0)" < "\($1)" } }
      if !effects.isEmpty { pages[key] = effects }
    }
    removeTruncatedMessages()
  }

  private mutating func removeTruncatedMessages() {
    for (head, effects) in pages where head.page == .head {
      for case .channel(_, .truncated(let through, _)) in effects {
        for (key, effects) in pages where key.shard == head.shard && key.channel == head.channel {
          guard case .segment = key.page else { continue }
          let kept = effects.filter { effect in
            if case .channel(_, .messageAssigned(let sequence, _)) = effect { return sequence > through }
            return true
          }
          pages[key] = kept.isEmpty ? nil : kept
        }
      }
    }
  }

  /// The differences to an owner's state; empty if there are none.
  func differences(from owner: StoredState) -> [String] {
    var found: [String] = []
    for key in Set(pages.keys).union(owner.pages.keys) where pages[key] != owner.pages[key] {
      let place = "shard \(key.shard.rawValue), channel \(key.channel.rawValue), page \(key.page)"
      let (own, other) = (pages[key] ?? [], owner.pages[key] ?? [])
      let first = zip(own, other).first { $0 != $1 }
      found.append(
        "\(place): \(own.count) effects, the owner has \(other.count); first difference \(first as Any)"
      )
    }
    if directory != owner.directory { found.append("the names differ") }
    if logLength != 0 || owner.logLength != 0 {
      found.append("the log has \(logLength) batches, the owner's \(owner.logLength)")
    }
    return found.sorted() + uncovered(by: owner)
  }

  /// Commands that a resend would not apply here, while the owner would apply them.
  private func uncovered(by owner: StoredState) -> [String] {
    sessions.flatMap { shard, records in
      records.values.flatMap { record in
        (1...record.highest).filter { counter in
          record.covers(counter) && owner.sessions[shard]?[record.session]?.covers(counter) != true
        }
        .map { "shard \(shard.rawValue): counter \($0) is covered here and not at the owner" }
      }
    }
  }
}
