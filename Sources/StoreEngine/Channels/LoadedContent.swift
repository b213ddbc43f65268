internal import ReceiptModel
internal import ReceiptWire

/// Contents of a channel: per page its effects, then the newer effects of the tail for that page. Pages are
/// independent, but a segment must be complete before the next one begins.
struct LoadedContent {
  private(set) var effects: [ChannelEffect] = []
  /// Pages with effects that are only in the log, and the log index of each such effect.
  private(set) var newer: [(page: PageID, index: LogIndex)] = []
  private var parts = LoadedParts(isThread: false)
  private var threads = ThreadContents()
  /// Number of pages of a user's index so far; they must be consecutive.
  private var membershipPages: UInt32 = 0

  /// Throw where the effects are inconsistent, so that assigning them would trap.
  init(
    _ number: ChannelNumber,
    _ pages: [(page: PageID, content: Page)],
    _ tail: [(index: LogIndex, effect: ChannelEffect)],
    _ location: String
  ) throws(StorageError) {
    var tails: [PageID: [(index: LogIndex, effect: ChannelEffect)]] = [:]
    for item in tail { tails[item.effect.page, default: []].append(item) }
    var contents: [PageID: Page] = [:]
    for (page, content) in pages { contents[page] = content }
    for page in Set(contents.keys).union(tails.keys).sorted(by: { $0.sortKey < $1.sortKey }) {
      let included = contents[page]?.index ?? .zero
      if case .memberships(let number) = page {
        guard number == membershipPages else {
          throw .corrupt("\(location), page \(page): the previous page is missing")
        }
        membershipPages += 1
      }
      for effect in contents[page]?.effects ?? [] {
        guard case .channel(number, let effect) = effect, effect.page == page, accepts(effect) else {
          throw .corrupt("\(location), page \(page): an effect that does not belong to the page")
        }
        effects.append(effect)
      }
      for (index, effect) in tails[page] ?? [] where index > included {
        guard accepts(effect) else {
          throw .corrupt(
            "\(location), page \(page), log index \(index.rawValue): an earlier effect that it depends on is missing"
          )
        }
        effects.append(effect)
        newer.append((page, index))
      }
      // A segment may have been written while its channel's head was not yet.
      for (index, effect) in tails[page] ?? [] where effect.traits.contains(.changesMessageCounts) {
        if index > contents[.head]?.index ?? .zero { newer.append((.head, index)) }
      }
    }
    for (index, effect) in tail { recordEmptied(by: effect, at: index, contents) }
    guard parts.truncated <= parts.newest else {
      throw .corrupt("\(location): truncated up to message \(parts.truncated), there are \(parts.newest)")
    }
    guard parts.named <= parts.newest else {
      throw .corrupt("\(location): a row names message \(parts.named), there are \(parts.newest)")
    }
    if let parent = threads.firstBroken {
      throw .corrupt(
        "\(location), thread of message \(parent.rawValue): a row names a reply that is not there"
      )
    }
  }

  /// Record pages of acknowledgements that must be written again: a deleted message takes its acknowledgements with it,
  /// and their page may be older than the deletion.
  private mutating func recordEmptied(
    by effect: ChannelEffect,
    at index: LogIndex,
    _ contents: [PageID: Page]
  ) {
    func isStale(_ page: PageID) -> Bool {
      contents[page].map { $0.index < index && !$0.effects.isEmpty } ?? false
    }
    guard let removed = effect.removedMessages else { return }
    guard removed.after.next < removed.through else {
      if isStale(.acknowledgements(removed.through)) { newer.append((.acknowledgements(removed.through), index)) }
      return
    }
    for page in contents.keys.sorted(by: { $0.sortKey < $1.sortKey }) where isStale(page) {
      guard case .acknowledgements(let sequence) = page, sequence > removed.after, sequence <= removed.through
      else { continue }
      newer.append((page, index))
    }
  }

  private mutating func accepts(_ effect: ChannelEffect) -> Bool {
    guard case .inThread(let parent, let effect) = effect else { return parts.accepts(effect) }
    return parent.rawValue <= parts.newest && threads.accepts(effect, parent)
  }
}

/// Consistency check of a channel's threads while the channel loads. A thread's rows come before its replies
/// (``PageID/sortKey``), and both after the channel's messages.
struct ThreadContents {
  private var threads: [SequenceNumber: LoadedParts] = [:]

  /// First thread with a row that names a missing reply; valid once all effects were checked.
  var firstBroken: SequenceNumber? {
    threads.filter { $0.value.named > $0.value.newest }.keys.min()
  }

  /// Return whether an effect on a thread is consistent with those before it; assigning an inconsistent one would trap.
  mutating func accepts(_ effect: ChannelEffect, _ parent: SequenceNumber) -> Bool {
    guard effect.traits.contains(.threadable) else { return false }
    return threads[parent, default: LoadedParts(isThread: true)].accepts(effect)
  }
}
