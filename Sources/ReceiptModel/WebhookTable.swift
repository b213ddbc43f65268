/// Webhooks that a shard has taken, each up to a time, so that one that is sent again is known (Proto/frames.md, 0x42).
/// None is forgotten early; what is in here past its time is gone with the next that is noted.
package struct WebhookTable: Sendable {
  /// Webhooks that a shard remembers at the same time.
  package static let countMax = 65_536
  /// How long one can be remembered, in milliseconds.
  package static let lifetimeMax: Int64 = 3_600_000

  /// By page, then by the hash of their keys: up to and including when they are remembered, in milliseconds.
  private var pages: [[UInt64: Int64]] = []
  /// A heap by time: who is forgotten next stands first.
  private var order: [Entry] = []

  private struct Entry: Sendable {
    var until: Int64
    var key: UInt64
  }

  init() {}

  /// Webhooks in here, also those whose time is over.
  package var count: Int { order.count }

  /// Up to and including when a webhook is remembered, which may be over; nil: nothing is known of it.
  ///
  /// - Parameter key: the XXH64 of its key.
  package func until(_ key: UInt64) -> Timestamp? {
    guard !pages.isEmpty else { return nil }
    return pages[Int(PageID.webhookPage(of: key))][key].map { Timestamp(milliseconds: $0) }
  }

  /// When there is room for another one; none: there is.
  package func full(at time: Timestamp) -> Timestamp {
    guard order.count >= Self.countMax, let first = order.first, first.until >= time.milliseconds else {
      return .none
    }
    return Timestamp(milliseconds: first.until + 1)
  }

  /// Remembers one, and forgets those whose time is over.
  mutating func note(_ key: UInt64, until: Timestamp, at time: Timestamp) {
    while let first = order.first, first.until < time.milliseconds { forgetFirst() }
    if pages.isEmpty { pages = Array(repeating: [:], count: Int(PageID.webhookPages)) }
    let page = Int(PageID.webhookPage(of: key))
    // Read from its page, and once more from the log.
    guard pages[page].updateValue(until.milliseconds, forKey: key) != until.milliseconds else { return }
    insert(Entry(until: until.milliseconds, key: key))
  }

  /// The effects that make a page: those that are remembered at a time.
  func effects(of page: UInt32, at time: Timestamp) -> [Effect] {
    guard !pages.isEmpty else { return [] }
    return pages[Int(page)].filter { $0.value >= time.milliseconds }.sorted { $0.key < $1.key }
      .map { .webhookNoted($0.key, until: Timestamp(milliseconds: $0.value)) }
  }

  /// What it occupies, in bytes: a dictionary's entry is 16 bytes and its share of empty room.
  package var byteCount: Int { heapBytes(order) + heapBytes(pages) + order.count * 32 }

  // MARK: The heap

  private mutating func insert(_ entry: Entry) {
    order.append(entry)
    var place = order.count - 1
    while place > 0, order[(place - 1) / 2].until > order[place].until {
      order.swapAt(place, (place - 1) / 2)
      place = (place - 1) / 2
    }
  }

  private mutating func forgetFirst() {
    order.swapAt(0, order.count - 1)
    let entry = order.removeLast()
    let page = Int(PageID.webhookPage(of: entry.key))
    if pages[page][entry.key] == entry.until { pages[page][entry.key] = nil }
    var place = 0
    while true {
      var least = place
      for child in [2 * place + 1, 2 * place + 2]
      where child < order.count && order[child].until < order[least].until {
        least = child
      }
      if least == place { return }
      order.swapAt(place, least)
      place = least
    }
  }
}
