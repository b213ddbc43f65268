import Foundation

/// Marks that the server has not answered, in the order in which they were made: what is sent next, and when.
///
/// They are in the store from the call on. One request is under way at a time. `Tidemark` performs what this decides.
struct Outbox: Sendable {
  /// Marks that wait, at the most.
  static let marksMax = 10_000
  /// Attempts after which a message that the server does not know is given up.
  static let unknownMax = 6
  /// Delivered messages in one request.
  static let batchMax = 100

  /// Time between two reads of a place, and until a delivered message is sent.
  let interval: Duration
  var backoff: Backoff
  /// Keys in the store.
  private(set) var keys: Set<String> = []
  /// Keys of marks that are being put into the store.
  private var addingKeys: Set<String> = []
  private var sentAt: [Place: ContinuousClock.Instant] = [:]
  private var unknown: [String: Int] = [:]

  init(interval: Duration, random: @escaping @Sendable () -> Double) {
    self.interval = interval
    backoff = Backoff(random: random)
  }

  /// Number of marks that the server has not answered.
  var pending: Int { keys.count + addingKeys.count }

  // MARK: Keys

  mutating func beginAdding(_ key: String) { addingKeys.insert(key) }

  mutating func endAdding(_ key: String, isStored: Bool) {
    addingKeys.remove(key)
    if isStored { keys.insert(key) }
  }

  mutating func remove(_ key: String) {
    keys.remove(key)
    unknown[key] = nil
  }

  /// Take what the store has. Marks that came after the known ones may not be among them.
  mutating func replaceKeys(_ known: Set<String>, by marks: [StoredMark]) {
    keys = keys.subtracting(known).union(marks.map(\.key))
  }

  // MARK: Compaction

  /// Split marks into those that stay, and the keys of those that another one makes needless.
  ///
  /// - Parameter seqOf: The number of a mark's message; nil: it is not known.
  static func compact(
    _ marks: [StoredMark],
    seqOf: (Mark) -> Int?
  ) -> (kept: [StoredMark], needless: [String]) {
    var kept: [StoredMark?] = []
    var needless: [String] = []
    // Positions of a place since its last mark-unread, as indices of `kept`.
    var positions: [Place: [Int]] = [:]
    for stored in marks {
      guard let place = stored.mark.place, stored.mark.isPosition else {
        if stored.mark.kind == .readAll {
          positions = [:]
        } else if stored.mark.kind == .unread, let place = stored.mark.place {
          positions[place] = nil
        }
        kept.append(stored)
        continue
      }
      var isNeedless = false
      var stillOpen: [Int] = []
      // The newest first; what an older one of them covers is needless too.
      for index in (positions[place] ?? []).reversed() {
        guard let older = kept[index] else { continue }
        if isNeedless {
          stillOpen.append(index)
        } else if covers(older.mark, stored.mark, seqOf) {
          isNeedless = true
          stillOpen.append(index)
        } else if covers(stored.mark, older.mark, seqOf) || areUnknownReads(older.mark, stored.mark, seqOf) {
          needless.append(older.key)
          kept[index] = nil
        } else {
          stillOpen.append(index)
        }
      }
      stillOpen.reverse()
      if isNeedless {
        needless.append(stored.key)
      } else {
        stillOpen.append(kept.count)
        kept.append(stored)
      }
      positions[place] = stillOpen
    }
    return (kept.compactMap { $0 }, needless)
  }

  private static func covers(_ mark: Mark, _ other: Mark, _ seqOf: (Mark) -> Int?) -> Bool {
    if mark.kind == .delivered, other.kind == .read { return false }
    if mark.id == nil || mark.id == other.id { return true }
    guard let seq = seqOf(mark), let otherSeq = seqOf(other) else { return false }
    return seq >= otherSeq
  }

  /// Of two messages of unknown numbers the later read is that of the newer one.
  private static func areUnknownReads(_ older: Mark, _ newer: Mark, _ seqOf: (Mark) -> Int?) -> Bool {
    guard older.kind == .read, newer.kind == .read, older.id != nil else { return false }
    return seqOf(older) == nil && seqOf(newer) == nil
  }

  // MARK: Schedule

  /// What to do with the marks that wait.
  enum Step: Sendable, Equatable {
    /// Send these marks in one request.
    case send([StoredMark])
    /// Nothing is due before this time.
    case wait(Duration)
    /// Nothing is left.
    case done
  }

  /// The next request.
  ///
  /// - Parameter mayDeliver: Whether it is known if the user shows deliveries; nothing is sent as delivered before.
  mutating func next(
    _ marks: [StoredMark],
    mayDeliver: Bool,
    now: ContinuousClock.Instant,
    wallClock: Date
  ) -> Step {
    if sentAt.count > Self.marksMax { sentAt = sentAt.filter { now - $0.value < interval } }
    let milliseconds = wallClock.milliseconds
    var due: [Duration] = []
    // A mark that a later one of its place waits for is not held back.
    var awaitedPlaces: Set<Place> = []
    var areAllAwaited = false
    for mark in marks.reversed().map(\.mark) {
      let isAwaited = areAllAwaited || mark.place.map(awaitedPlaces.contains) == true
      due.append(dueIn(mark, isAwaited: isAwaited, mayDeliver: mayDeliver, now: now, milliseconds: milliseconds))
      if mark.kind == .readAll {
        areAllAwaited = true
      } else if mark.kind == .unread, let place = mark.place {
        awaitedPlaces.insert(place)
      }
    }
    due.reverse()
    guard let first = due.firstIndex(where: { $0 <= .zero }) else {
      return due.min().map(Step.wait) ?? .done
    }
    guard marks[first].mark.kind == .delivered else { return .send([marks[first]]) }
    let batch = zip(marks, due).filter { $0.mark.kind == .delivered && $1 <= .zero }.map(\.0)
    return .send(Array(batch.prefix(Self.batchMax)))
  }

  private func dueIn(
    _ mark: Mark,
    isAwaited: Bool,
    mayDeliver: Bool,
    now: ContinuousClock.Instant,
    milliseconds: Int
  ) -> Duration {
    switch mark.kind {
    case .delivered:
      if !mayDeliver { return interval }
      // A clock that was set back must not hold a mark.
      return isAwaited || mark.at > milliseconds ? .zero : .milliseconds(mark.at - milliseconds) + interval
    case .read:
      guard !isAwaited, let place = mark.place, let sent = sentAt[place] else { return .zero }
      return sent + interval - now
    case .unread, .readAll, .acknowledge: return .zero
    }
  }

  /// Note that reads were sent.
  mutating func sent(_ batch: [StoredMark], now: ContinuousClock.Instant) {
    for mark in batch.map(\.mark) where mark.kind == .read {
      if let place = mark.place { sentAt[place] = now }
    }
  }

  /// Whether a mark is sent again after a failure.
  mutating func isRetried(_ failed: FailedMark) -> Bool {
    guard failed.error.code == "message_not_found" else { return failed.error.isTemporary }
    unknown[failed.key, default: 0] += 1
    return unknown[failed.key, default: 0] < Self.unknownMax
  }
}
