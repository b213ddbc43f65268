import Foundation

/// What a client tells its app.
public enum Change: Hashable, Sendable {
  /// Rows, counts or statuses of a place have changed, or it is there no more.
  case place(Place)
  /// The totals over all channels.
  case totals(Totals)
  /// A mark that the server has refused for good.
  case refused(Refusal)
  /// An own message was acknowledged, or its time to be acknowledged is over.
  case receipt(ReceiptChange)
  /// The event stream is open.
  case online
  /// The event stream is lost. The client connects again by itself, unless the error is not temporary.
  case offline(TidemarkError)
}

/// Changes since it was asked for, for one reader. It ends when the client is closed.
///
/// A reader that is too slow gets a place that changed several times once, and of totals and connection the newest.
public struct Changes: AsyncSequence, Sendable {
  /// A change.
  public typealias Element = Change

  fileprivate let buffer: ChangeBuffer

  /// Begin to read. There may be one iterator at a time.
  public func makeAsyncIterator() -> Iterator { Iterator(buffer: buffer) }

  /// Reads changes.
  public struct Iterator: AsyncIteratorProtocol {
    fileprivate let buffer: ChangeBuffer

    /// The next change; nil when the client is closed, or the task cancelled.
    public mutating func next() async -> Change? { await buffer.next() }
  }
}

/// Passes changes to readers.
///
/// `@unchecked`: readers come and go on threads of their own; every access to the variables is under the lock.
final class ChangeHub: @unchecked Sendable {
  private struct Reader {
    weak var buffer: ChangeBuffer?
  }

  private let lock = NSLock()
  private var readers: [Reader] = []
  private var isFinished = false

  func subscribe() -> Changes {
    let buffer = ChangeBuffer()
    let isFinished = lock.withLock {
      readers.removeAll { $0.buffer == nil }
      readers.append(Reader(buffer: buffer))
      return self.isFinished
    }
    if isFinished { buffer.finish() }
    return Changes(buffer: buffer)
  }

  private var buffers: [ChangeBuffer] { lock.withLock { readers.compactMap(\.buffer) } }

  func emit(_ change: Change) {
    for buffer in buffers { buffer.add(change) }
  }

  func finish() {
    lock.withLock { isFinished = true }
    for buffer in buffers { buffer.finish() }
  }
}

/// Changes that one reader has not read.
///
/// `@unchecked`: the client writes, and a reader reads; every access to the variables is under the lock.
final class ChangeBuffer: @unchecked Sendable {
  /// Refusals and receipts that wait, at the most. Of places, totals and connection only the newest change waits.
  private static let singlesMax = 1_000

  private enum Key: Hashable {
    case place(Place)
    case totals
    case connection
    case single(Int)
  }

  private let lock = NSLock()
  private var changes: [Key: Change] = [:]
  /// Keys in the order in which they came; those before `first` are read.
  private var keys: [Key] = []
  private var first = 0
  /// Number of refusals and receipts that came.
  private var singles = 0
  private var isFinished = false
  private var waiting: CheckedContinuation<Change?, Never>?

  func add(_ change: Change) {
    let waiting = lock.withLock {
      guard let reader = self.waiting else {
        if !isFinished { keep(change) }
        return nil as CheckedContinuation<Change?, Never>?
      }
      self.waiting = nil
      return reader
    }
    waiting?.resume(returning: change)
  }

  private func keep(_ change: Change) {
    let key: Key
    switch change {
    case .place(let place): key = .place(place)
    case .totals: key = .totals
    case .online, .offline: key = .connection
    case .refused, .receipt:
      singles += 1
      key = .single(singles)
      let dropped = Key.single(singles - Self.singlesMax)
      if changes.removeValue(forKey: dropped) != nil { removeKey(dropped) }
    }
    if changes.updateValue(change, forKey: key) == nil { keys.append(key) }
  }

  private func removeKey(_ key: Key) {
    if let index = keys[first...].firstIndex(of: key) { keys.remove(at: index) }
  }

  /// The oldest change that is not read.
  private func take() -> Change? {
    defer {
      if first > 64, first * 2 > keys.count {
        keys.removeFirst(first)
        first = 0
      }
    }
    while first < keys.count {
      first += 1
      if let change = changes.removeValue(forKey: keys[first - 1]) { return change }
    }
    return nil
  }

  func next() async -> Change? {
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let (earlier, answer): (CheckedContinuation<Change?, Never>?, Change??) = lock.withLock {
          if let change = take() { return (nil, change) }
          if isFinished || Task.isCancelled { return (nil, .some(nil)) }
          defer { waiting = continuation }
          return (waiting, nil)
        }
        // A second iterator takes the place of the first.
        earlier?.resume(returning: nil)
        if let answer { continuation.resume(returning: answer) }
      }
    } onCancel: {
      lock.withLock {
        defer { waiting = nil }
        return waiting
      }?.resume(returning: nil)
    }
  }

  func finish() {
    lock.withLock {
      isFinished = true
      defer { waiting = nil }
      return waiting
    }?.resume(returning: nil)
  }
}
