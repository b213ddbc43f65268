import Foundation
import Testing

@testable import TidemarkClient

/// Marks as words: `read c 3` is a read of message 3 in channel `a:c`, `read c ?x` one of an unknown number, and
/// `read c` one of the newest message.
@Suite struct OutboxTests {
  private static let seqOf: @Sendable (Mark) -> Int? = { $0.id.flatMap { Int($0) } }

  private static func marks(_ texts: [String]) -> [StoredMark] {
    texts.enumerated().map { index, text in
      let words = text.split(separator: " ").map(String.init)
      let place = words.count > 1 ? Place(cid: "a:" + words[1]) : nil
      var mark = Mark(MarkKind(rawValue: words[0]) ?? .read, place: place, id: words.count > 2 ? words[2] : nil)
      mark.at = 1_000_000
      return StoredMark(key: "\(index)", mark: mark)
    }
  }

  struct Row: CustomTestStringConvertible {
    var marks: [String]
    var kept: [String]
    var testDescription: String { marks.joined(separator: ", ") }
  }

  @Test(arguments: [
    Row(marks: ["read c 1", "read c 2"], kept: ["read c 2"]),
    Row(marks: ["read c 2", "read c 1"], kept: ["read c 2"]),
    Row(marks: ["read c 2", "read c 2"], kept: ["read c 2"]),
    Row(marks: ["read c 1", "read d 2"], kept: ["read c 1", "read d 2"]),
    Row(marks: ["delivered c 1", "read c 1"], kept: ["read c 1"]),
    Row(marks: ["delivered c 2", "read c 1"], kept: ["delivered c 2", "read c 1"]),
    Row(marks: ["read c 2", "delivered c 1"], kept: ["read c 2"]),
    Row(marks: ["read c 1", "delivered c 2"], kept: ["read c 1", "delivered c 2"]),
    Row(marks: ["delivered c 1", "delivered c 3", "delivered c 2"], kept: ["delivered c 3"]),
    Row(marks: ["read c 1", "read c"], kept: ["read c"]),
    Row(marks: ["read c", "read c 1"], kept: ["read c"]),
    Row(marks: ["read c ?x", "read c ?y"], kept: ["read c ?y"]),
    Row(marks: ["read c 1", "read c ?y"], kept: ["read c 1", "read c ?y"]),
    Row(marks: ["delivered c ?x", "delivered c ?y"], kept: ["delivered c ?x", "delivered c ?y"]),
    Row(marks: ["read c 2", "unread c 1", "read c 1"], kept: ["read c 2", "unread c 1", "read c 1"]),
    Row(marks: ["read c 1", "unread d 1", "read c 2"], kept: ["unread d 1", "read c 2"]),
    Row(marks: ["read c 1", "readAll", "read c 2"], kept: ["read c 1", "readAll", "read c 2"]),
    Row(marks: ["unread c 1", "unread c 1"], kept: ["unread c 1", "unread c 1"]),
    Row(
      marks: ["delivered c 1", "read c 2", "delivered c 3", "read c 4", "read d 1"],
      kept: ["read c 4", "read d 1"]
    ),
  ])
  func needlessMarksAreDropped(_ row: Row) {
    let marks = Self.marks(row.marks)
    let (kept, needless) = Outbox.compact(marks, seqOf: Self.seqOf)
    #expect(kept.map { row.marks[Int($0.key) ?? -1] } == row.kept)
    #expect(Set(needless).isDisjoint(with: kept.map(\.key)))
    #expect(kept.count + needless.count == marks.count)
  }

  /// What is sent of some marks, and when, a given number of milliseconds after they were made.
  private static func next(
    _ texts: [String],
    after milliseconds: Int,
    mayDeliver: Bool = true,
    outbox: Outbox? = nil,
    now: ContinuousClock.Instant = .now
  ) -> Outbox.Step {
    var outbox = outbox ?? Outbox(interval: .seconds(1)) { 0.5 }
    let wallClock = Date(timeIntervalSince1970: Double(1_000_000 + milliseconds) / 1_000)
    return outbox.next(marks(texts), mayDeliver: mayDeliver, now: now, wallClock: wallClock)
  }

  @Test func deliveriesWaitAndAreSentTogether() {
    let marks = ["delivered c 1", "delivered d 1"]
    #expect(Self.next(marks, after: 400) == .wait(.milliseconds(600)))
    #expect(Self.next(marks, after: 1_000) == .send(Self.marks(marks)))
    #expect(Self.next(marks, after: 1_000, mayDeliver: false) == .wait(.seconds(1)))
    #expect(Self.next([], after: 0) == .done)
  }

  @Test func deliveriesWaitForNoClockThatWasSetBack() {
    let marks = ["delivered c 1"]
    #expect(Self.next(marks, after: -3_600_000) == .send(Self.marks(marks)))
  }

  @Test func deliveryThatLaterMarkNeedsIsSentAtOnce() {
    let marks = ["delivered c 1", "unread c 1"]
    #expect(Self.next(marks, after: 0) == .send([Self.marks(marks)[0]]))
    #expect(Self.next(["delivered c 1", "unread d 1"], after: 0) != .send([Self.marks(marks)[0]]))
    #expect(Self.next(["delivered c 1", "readAll"], after: 0) == .send([Self.marks(marks)[0]]))
  }

  @Test func readsOfPlaceKeepInterval() {
    let now = ContinuousClock.now
    var outbox = Outbox(interval: .seconds(1)) { 0.5 }
    outbox.sent(Self.marks(["read c 1"]), now: now)
    let later = now + .milliseconds(300)
    #expect(Self.next(["read c 2"], after: 0, outbox: outbox, now: later) == .wait(.milliseconds(700)))
    #expect(Self.next(["read d 2"], after: 0, outbox: outbox, now: later) == .send(Self.marks(["read d 2"])))
    let both = Self.marks(["read c 2", "unread c 1"])
    #expect(Self.next(["read c 2", "unread c 1"], after: 0, outbox: outbox, now: later) == .send([both[0]]))
    #expect(Self.next(["read c 2"], after: 0, outbox: outbox, now: now + .seconds(1)) == .send([both[0]]))
  }

  @Test func unknownMessageIsGivenUpAfterSixAttempts() {
    var outbox = Outbox(interval: .seconds(1)) { 0.5 }
    let mark = Self.marks(["read c 1"])[0]
    let failed = FailedMark(key: mark.key, mark: mark.mark, error: .ofEntry("message_not_found"))
    let retries = (0..<6).map { _ in outbox.isRetried(failed) }
    #expect(retries == [true, true, true, true, true, false])
    let others = ["store_busy", "channel_not_found"].map { code in
      outbox.isRetried(FailedMark(key: code, mark: mark.mark, error: .ofEntry(code)))
    }
    #expect(others == [true, false])
  }

  @Test func pausesDoubleUpToLimit() {
    var backoff = Backoff { 1 }
    let pauses = (0..<8).map { _ in backoff.next() }
    #expect(pauses == [0.5, 1, 2, 4, 8, 16, 30, 30].map { .seconds($0) })
    let asked = backoff.next(least: .seconds(60))
    #expect(asked == .seconds(60))
    backoff.reset()
    var shortest = Backoff { 0 }
    let first = [backoff.next(), shortest.next()]
    #expect(first == [.milliseconds(500), .milliseconds(250)])
  }
}
