/// The pending timers of a shard, by number. A timer is removed when it is due: what cancels it, a deletion for
/// example, is found out only then (R22). Numbers of empty pages are used again, so that pages do not accumulate.
package struct TimerTable: Sendable {
  /// Maximum number of pending timers of a shard.
  package static let countMax = 4_194_304

  /// The timers of each page, in the order of their numbers.
  private var pages: [UInt32: [Entry]] = [:]
  package private(set) var count = 0
  /// The number that was assigned last.
  private var last: UInt64 = 0

  private struct Entry: Sendable {
    var number: UInt64
    var timer: MessageTimer
  }

  init() {}

  /// Whether another message may have timers.
  var hasRoom: Bool { count + ReminderRule.countMax < Self.countMax }

  /// Size in bytes.
  package var byteCount: Int { count * MemoryLayout<Entry>.stride }

  package subscript(number: UInt64) -> MessageTimer? {
    guard let entries = pages[PageID.timerPage(of: number)] else { return nil }
    let index = Self.index(of: number, in: entries)
    return index < entries.count && entries[index].number == number ? entries[index].timer : nil
  }

  /// Call `body` with each timer and its number.
  package func forEach(_ body: (UInt64, MessageTimer) -> Void) {
    for entries in pages.values {
      for entry in entries { body(entry.number, entry.timer) }
    }
  }

  /// Return the effects that reproduce a page.
  func effects(of page: UInt32) -> [Effect] {
    (pages[page] ?? []).map { .shard(.timerAssigned($0.number, $0.timer)) }
  }

  // MARK: Deciding

  /// Add timers.
  func decideAdd(_ timers: [MessageTimer], into effects: inout [Effect]) {
    var number = last
    for timer in timers {
      number = freeNumber(after: number)
      effects.append(.shard(.timerAssigned(number, timer)))
    }
  }

  /// Return the next free number of a number's page, or the first one of the lowest empty page.
  private func freeNumber(after last: UInt64) -> UInt64 {
    var number = last + 1
    while number % PageID.timersPerPage != 0 {
      if self[number] == nil { return number }
      number += 1
    }
    var page: UInt32 = 0
    while pages[page] != nil || page == PageID.timerPage(of: last) { page += 1 }
    return max(1, UInt64(page) * PageID.timersPerPage)
  }

  // MARK: Assignment

  mutating func assign(_ number: UInt64, _ timer: MessageTimer) {
    last = number
    let entry = Entry(number: number, timer: timer)
    let page = PageID.timerPage(of: number)
    let index = Self.index(of: number, in: pages[page] ?? [])
    if self[number] == nil {
      pages[page, default: []].insert(entry, at: index)
      count += 1
    } else {
      pages[page]?[index] = entry
    }
  }

  mutating func remove(_ number: UInt64) {
    let page = PageID.timerPage(of: number)
    guard self[number] != nil, let entries = pages[page] else { return }
    count -= 1
    guard entries.count > 1 else { return pages[page] = nil }
    pages[page]?.remove(at: Self.index(of: number, in: entries))
  }

  /// Return the position of the first entry with this number or a higher one.
  private static func index(of number: UInt64, in entries: [Entry]) -> Int {
    var (low, high) = (0, entries.count)
    while low < high {
      let middle = (low + high) / 2
      if entries[middle].number < number { low = middle + 1 } else { high = middle }
    }
    return low
  }
}
