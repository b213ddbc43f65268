/// Webhooks that a shard has accepted, each remembered up to a time, to recognise duplicates (Proto/frames.md, 0x42).
/// No webhook is forgotten early; expired ones are removed when the next is added.
package struct WebhookTable: Sendable {
  /// Maximum number of webhooks that a shard remembers at a time.
  package static let countMax = 65_536
  /// Maximum time for which a webhook is remembered, in milliseconds.
  package static let lifetimeMax: Int64 = 3_600_000

  /// By page, then by the hash of the key: the last millisecond at which the webhook is remembered.
  private var pages: [[UInt64: Int64]] = []
  /// A min-heap by expiry: the next webhook to forget comes first.
  private var order: [Entry] = []

  private struct Entry: Sendable {
    var until: Int64
    var key: UInt64
  }

  init() {}

  /// Number of webhooks, including expired ones.
  package var count: Int { order.count }

  /// Return the last time at which a webhook is remembered, which may be past; nil: unknown webhook.
  ///
  /// - Parameter key: the XXH64 of its key.
  package func until(_ key: UInt64) -> Timestamp? {
    guard !pages.isEmpty else { return nil }
    return pages[Int(PageID.webhookPage(of: key))][key].map { Timestamp(milliseconds: $0) }
  }

  /// Return whether a webhook was accepted before and is still remembered.
  package func isKnown(_ key: UInt64, at time: Timestamp) -> Bool { until(key).map { $0 >= time } ?? false }

  /// Return when there is room for another webhook; none: there is room now.
  package func full(at time: Timestamp) -> Timestamp {
    guard order.count >= Self.countMax, let first = order.first, first.until >= time.milliseconds else {
      return .none
    }
    return Timestamp(milliseconds: first.until + 1)
  }

  /// Remember a webhook, for at most an hour; do nothing if `until` is past. The caller ensures that the webhook is
  /// unknown and that there is room.
  package func decideRemember(_ key: UInt64, until: Timestamp, at time: Timestamp, into effects: inout [Effect]) {
    guard until >= time else { return }
    let latest = Timestamp(milliseconds: time.milliseconds + Self.lifetimeMax)
    effects.append(.shard(.webhookNoted(key, until: min(until, latest))))
  }

  /// Add a webhook, and remove the expired ones.
  mutating func record(_ key: UInt64, until: Timestamp, at time: Timestamp) {
    while let first = order.first, first.until < time.milliseconds { forgetFirst() }
    if pages.isEmpty { pages = Array(repeating: [:], count: Int(PageID.webhookPages)) }
    let page = Int(PageID.webhookPage(of: key))
    // A webhook may be read from its page and again from the log.
    guard pages[page].updateValue(until.milliseconds, forKey: key) != until.milliseconds else { return }
    insert(Entry(until: until.milliseconds, key: key))
  }

  /// Return the effects that reproduce a page: the webhooks remembered at `time`.
  func effects(of page: UInt32, at time: Timestamp) -> [Effect] {
    guard !pages.isEmpty else { return [] }
    return pages[Int(page)].filter { $0.value >= time.milliseconds }.sorted { $0.key < $1.key }
      .map { .shard(.webhookNoted($0.key, until: Timestamp(milliseconds: $0.value))) }
  }

  /// Size in bytes. A dictionary entry is 16 bytes and its share of empty slots.
  package var byteCount: Int { heapBytes(order) + heapBytes(pages) + order.count * 32 }

  // MARK: Heap

  private mutating func insert(_ entry: Entry) {
    order.append(entry)
    var index = order.count - 1
    while index > 0, order[(index - 1) / 2].until > order[index].until {
      order.swapAt(index, (index - 1) / 2)
      index = (index - 1) / 2
    }
  }

  private mutating func forgetFirst() {
    order.swapAt(0, order.count - 1)
    let entry = order.removeLast()
    let page = Int(PageID.webhookPage(of: entry.key))
    if pages[page][entry.key] == entry.until { pages[page][entry.key] = nil }
    var index = 0
    while true {
      var least = index
      for child in [2 * index + 1, 2 * index + 2] where child < order.count && order[child].until < order[least].until {
        least = child
      }
      if least == index { return }
      order.swapAt(index, least)
      index = least
    }
  }
}
