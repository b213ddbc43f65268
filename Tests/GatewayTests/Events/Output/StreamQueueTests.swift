import Foundation
import NIOCore
import ReceiptModel
import Testing

@testable import Gateway

/// ``StreamQueue`` without a stream. Entries are written as `bytes@id`.
@Suite struct StreamQueueTests {
  private func key(_ text: String) -> StreamQueue.Key {
    let parts = text.split(separator: " ").map(String.init)
    let kinds: [String: StreamQueue.Key.Kind] = [
      "read": .read, "delivered": .delivered, "row": .row, "mark_read": .markRead, "mark_unread": .markUnread,
      "new": .messageNew, "status": .status, "truncated": .truncated, "member": .member, "updated": .updated,
      "deleted": .channelDeleted, "totals": .totals, "receipt": .receipt,
    ]
    let subject = parts.count > 1 ? parts[1] : ""
    return StreamQueue.Key(
      kinds[parts[0]]!,
      cid: parts.count > 2 ? parts[2] : "messaging:general",
      subject: subject
    )
  }

  /// Put entries given as `kind subject [cid] = bytes @id`, and return the remaining ones in order.
  private func run(_ lines: [String]) -> [String] {
    var queue = StreamQueue()
    for line in lines {
      let sides = line.split(separator: "=").map { $0.trimmingCharacters(in: .whitespaces) }
      let right = sides[1].split(separator: "@")
      let id = right.count > 1 ? Int64(right[1]).map { Timestamp(milliseconds: $0) } : nil
      let bytes = ByteBuffer(string: right[0].trimmingCharacters(in: .whitespaces))
      _ = queue.put(StreamQueue.Entry(key: key(sides[0]), bytes: bytes, id: id)) {
        ByteBuffer(string: "reset")
      }
    }
    return drain(&queue)
  }

  private func drain(_ queue: inout StreamQueue) -> [String] {
    var left: [String] = []
    let byteCount = queue.byteCount
    var held = 0
    while let entry = queue.pop() {
      held += entry.heldBytes
      left.append(String(buffer: entry.bytes) + (entry.id.map { "@\($0.milliseconds)" } ?? ""))
    }
    #expect(queue.isEmpty && queue.count == 0 && queue.byteCount == 0)
    #expect(held == byteCount)
    return left
  }

  static let stories: [(String, [String], [String])] = [
    (
      "a rising position replaces the earlier one in place, and keeps its id",
      ["read bob = b1 @1", "read carol = c1 @2", "read bob = b2 @3", "new m1 = m1 @3"],
      ["b2@1", "c1@2", "m1@3"]
    ),
    (
      "read and delivered are separate states",
      ["delivered bob = d1", "read bob = r1", "delivered bob = d2"],
      ["d2", "r1"]
    ),
    (
      "a read covers older deliveries",
      ["read bob = 75", "delivered bob = 78", "read bob = 82"], ["78", "82"]
    ),
    (
      "a mark at a message comes after the message",
      [
        "read bob = r1 @1", "mark_read a = o1 @1", "new m2 = m2 @2", "read bob = at m2 @3",
        "mark_read a = own at m2 @3",
      ],
      ["m2@2", "at m2@3", "own at m2@3"]
    ),
    (
      "messages of other channels do not affect the order",
      ["read bob = r1", "new m2 other:c = m2", "read bob = r2"], ["r2", "m2"]
    ),
    (
      "a row replaces its positions", ["read bob = r1", "delivered bob = d1", "row bob = row"],
      ["row"]
    ),
    (
      "positions after a row come after it",
      ["row bob = row1 @1", "read bob = r1 @2", "read bob = r2 @3"], ["row1@1", "r2@2"]
    ),
    (
      "rows of different users are separate", ["read bob = r1", "row carol = row", "read bob = r2"],
      ["r2", "row"]
    ),
    (
      "the newer of two rows moves to the end", ["row bob = a @1", "new m1 = m1 @2", "row bob = b @3"],
      ["m1@2", "b@3"]
    ),
    (
      "the last of read and unread comes last",
      ["mark_read a = r1 @1", "mark_unread a = u1 @2", "mark_read a = r2 @3"], ["u1@2", "r2@3"]
    ),
    (
      "a mark replaces the previous one if nothing came between",
      ["mark_unread a = u1 @1", "mark_read a = r1 @2", "mark_read a = r2 @3"], ["u1@1", "r2@2"]
    ),
    (
      "the last membership change of a user is kept",
      ["member bob = added", "new m1 = m1", "member bob = removed"],
      ["m1", "removed"]
    ),
    ("messages are all kept", ["new m1 = a", "new m2 = b", "new m3 = c"], ["a", "b", "c"]),
    ("a repeated message replaces the first", ["new m1 = a", "new m2 = b", "new m1 = a2"], ["a2", "b"]),
    (
      "after a lost store connection a repeated join comes before its member's repeated message",
      [
        "member bob = added @1", "new m1 = bob's @2", "new m2 = m2 @3", "member bob = added @4", "new m1 = bob's @5",
        "new m2 = m2 @6",
      ],
      ["added@4", "bob's@5", "m2@6"]
    ),
    (
      "a repeated message stays in place where no membership changed after it",
      ["member bob = added @1", "new m1 = bob's @2", "member carol other:c = added @3", "new m1 = bob's @4"],
      ["added@1", "bob's@2", "added@3"]
    ),
    (
      "a truncation comes after earlier messages",
      ["truncated x = t1", "new m1 = m1", "truncated x = t2"], ["m1", "t2"]
    ),
    (
      "the deletion of a channel drops its other events",
      ["new m1 = m1", "read bob = r1", "new m2 other:c = m2", "deleted x = gone"], ["m2", "gone"]
    ),
    (
      "deleted, recreated and deleted again",
      ["deleted x = gone", "new m1 = m1", "deleted x = gone again"], ["gone again"]
    ),
    (
      "positions after a rejoin come after it",
      [
        "read bob = r1 @1", "delivered bob = d1 @1", "member bob = added @2", "read bob = r2 @3",
        "delivered bob = d2 @3",
      ],
      ["added@2", "r2@3", "d2@3"]
    ),
    (
      "own marks after a rejoin come after it",
      [
        "mark_read bob = r1", "mark_unread bob = u1", "member bob = added", "mark_unread bob = u2",
        "mark_read bob = r2",
      ],
      ["added", "u2", "r2"]
    ),
    (
      "membership changes of others do not affect the order",
      ["read bob = r1", "member carol = added", "read bob = r2"], ["r2", "added"]
    ),
    (
      "of overlapping status runs the newest comes last",
      ["status 1-5 = all read @1", "status 3-3 = delivered @2", "status 1-5 = all read again @3"],
      ["delivered@2", "all read again@3"]
    ),
    (
      "acknowledgements are kept per user, with the newest last",
      ["receipt m1_bob = bob's @1", "receipt m1_carol = carol's @2", "receipt m1_bob = bob's again @3"],
      ["carol's@2", "bob's again@3"]
    ),
    ("only the latest totals are kept", ["totals a = 1", "read bob = r", "totals a = 2"], ["2", "r"]),
  ]

  @Test(arguments: stories) func entriesAreConflated(story: (String, [String], [String])) {
    #expect(run(story.1) == story.2, "\(story.0)")
  }

  private func put(_ number: Int, _ queue: inout StreamQueue) -> StreamQueue.Outcome {
    let entry = StreamQueue.Entry(
      key: StreamQueue.Key(.messageNew, subject: "m\(number)"),
      bytes: ByteBuffer(string: "m\(number)"),
      id: nil
    )
    return queue.put(entry) { ByteBuffer(string: "reset") }
  }

  @Test func fullQueueResetsOnce() {
    var queue = StreamQueue()
    for number in 0..<StreamQueue.entriesMax { #expect(put(number, &queue) == .kept) }
    #expect(put(7, &queue) == .conflated && queue.count == StreamQueue.entriesMax)
    #expect(!queue.isReset)
    #expect(put(5_000, &queue) == .overflowed)
    #expect(queue.isReset && queue.count == 1)
    // Events after the reset are kept.
    #expect(put(5_001, &queue) == .kept)
    #expect(drain(&queue) == ["reset", "m5001"])
    #expect(!queue.isReset)
    #expect(put(5_002, &queue) == .kept)
  }

  /// Entries that move leave gaps, which do not accumulate.
  @Test func gapsAreCompacted() {
    var queue = StreamQueue()
    #expect(put(0, &queue) == .kept)
    for number in 0..<10_000 {
      let key = StreamQueue.Key(.updated, cid: "messaging:c\(number % 3)")
      _ = queue.put(StreamQueue.Entry(key: key, bytes: ByteBuffer(string: "\(number)"), id: nil)) {
        ByteBuffer()
      }
    }
    #expect(queue.count == 4)
    #expect(drain(&queue) == ["m0", "9997", "9998", "9999"])
  }

  @Test func poppedEntryCanBeRequeued() {
    var queue = StreamQueue()
    for number in 0..<3 { _ = put(number, &queue) }
    let first = queue.pop()!
    queue.requeueFront(first)
    #expect(put(0, &queue) == .conflated)
    #expect(drain(&queue) == ["m0", "m1", "m2"])
    _ = put(9, &queue)
    queue.requeueFront(queue.pop()!)
    #expect(drain(&queue) == ["m9"])
  }
}
