internal import DequeModule

/// A node's appends to the shared log: one transaction at a time, for all groups that have something to append
/// (docs/contribute/cluster-design.md, "Replicas"). One transaction for many groups costs the log one sync.
///
/// A group occurs at most once in a transaction. A record that is sent again replaces its earlier attempt if that has
/// not left, and does not wait for the transaction in flight if that has it: the answer is overdue.
///
/// Not thread-safe: call everything on one event loop.
package final class GroupWriter {
  package typealias Done = (AppendOutcome) -> Void

  private struct Entry {
    var append: GroupAppend
    var done: Done
  }

  private let log: any GroupLog
  private var waiting: Deque<Entry> = []
  /// Groups of the transaction in flight; empty: none is.
  private var inFlight: Set<GroupID> = []
  /// Rises with each transaction. The answer of an overdue one does not end a later one.
  private var number: UInt64 = 0

  /// Maximum number of groups in one transaction, and of payload bytes, unless one record has more.
  package static let groupsMax = 40
  private static let payloadBytesMax = 2 << 20

  package init(log: any GroupLog) { self.log = log }

  /// Append a record in the next transaction.
  package func append(_ append: GroupAppend, done: @escaping Done) {
    let entry = Entry(append: append, done: done)
    if let position = waiting.firstIndex(where: { $0.append.group == append.group }) {
      waiting[position] = entry
    } else {
      waiting.append(entry)
    }
    if inFlight.contains(append.group) { inFlight = [] }
    sendNext()
  }

  private func sendNext() {
    guard inFlight.isEmpty, !waiting.isEmpty else { return }
    var entries: [Entry] = []
    var bytes = 0
    while let next = waiting.first, entries.count < Self.groupsMax {
      bytes += next.append.record.payload.count
      guard entries.isEmpty || bytes <= Self.payloadBytesMax else { break }
      entries.append(waiting.removeFirst())
    }
    inFlight = Set(entries.map(\.append.group))
    number += 1
    let sent = number
    log.append(entries.map(\.append)) { [weak self] outcomes in
      if let self, sent == number { inFlight = [] }
      for (entry, outcome) in zip(entries, outcomes) { entry.done(outcome) }
      self?.sendNext()
    }
  }
}
