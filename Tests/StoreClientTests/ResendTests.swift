import NIOCore
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import StoreClient

/// Connections cut at any byte: every command is applied once, in order, and answered once.
struct ResendTests {
  @Test func unansweredRequestsAreResentInOrder() {
    let harness = ClientHarness()
    harness.store.holdsReplies = true
    harness.open()
    for tag: UInt64 in 1...6 { _ = tag.isMultiple(of: 3) ? harness.query(tag) : harness.command(tag) }
    harness.flush()
    harness.connection!.reply(harness.store.waiting[1])
    harness.pump()
    harness.cut()
    harness.command(7)
    harness.client.flush()
    harness.store.holdsReplies = false
    harness.advance(.milliseconds(100))
    let again = harness.store.requests.suffix(6)
    #expect(again.map { tag(of: $0.rest) } == [1, 3, 4, 5, 6, 7])
    #expect(again.map(\.counter) == [1, nil, 3, 4, nil, 5])
    #expect(again.map(\.isResend) == [true, true, true, true, true, false])
    #expect(harness.recorder.replies == [2, 1, 3, 4, 5, 6, 7])
    #expect(harness.client.stats.resends == 5)
    #expect(harness.client.stats.requestsSent == 7)
    #expect(harness.client.stats.connectionsLost == 1)
  }

  @Test(arguments: TestRun.seeds(40, long: 800))
  func commandsApplyOnceOverCutConnections(_ seed: UInt64) { Self.story(seed: seed) }

  /// Every third request has a user's token, whose time of issue is sent with it.
  private static func issued(_ tag: UInt64) -> UInt32? {
    tag.isMultiple(of: 3) ? 1_700_000_000 + UInt32(tag) : nil
  }

  /// Every fifth request is in a thread, where its kind allows that.
  private static func thread(_ tag: UInt64, _ kind: FrameKind) -> String? {
    tag.isMultiple(of: 5) && kind == .markRead ? "parent-\(tag)" : nil
  }

  /// 400 requests over connections that are cut repeatedly, in both directions, also within frames.
  static func story(seed: UInt64) {
    var generator = SplitMix64(printing: seed, of: "commands over cut connections")
    let window = generator.number(in: 3...200)
    let harness = ClientHarness {
      $0.inFlightMax = 150
      // With deadlines commands would fail, and their counters be missing.
      $0.requestDeadline = .hours(1)
    }
    harness.store.window = UInt32(window)
    harness.pieceMax = generator.number(in: 1...400)
    harness.client.start()
    var next: UInt64 = 0
    var commands = 0
    var turns = 0
    while harness.recorder.replies.count < 400, turns < 20_000 {
      turns += 1
      for _ in 0..<generator.number(in: 0...20) where next < 400 {
        let isCommand = generator.oneIn(2)
        let cid = "messaging:c\(next % 7)"
        let kind = isCommand ? FrameKind.markRead : .getChannel
        guard
          harness.send(
            kind,
            next,
            cid: cid,
            // The fields end with at least one zero, by which the fake store finds the thread's name.
            bytes: 9 + generator.number(in: 0...60),
            issued: issued(next),
            thread: thread(next, kind)
          )
        else { break }
        next += 1
        if isCommand { commands += 1 }
      }
      harness.client.flush()
      if generator.oneIn(4) {
        if generator.oneIn(2) {
          harness.bytesUp = generator.number(in: 1...1500)
        } else {
          harness.bytesDown = generator.number(in: 1...1500)
        }
      }
      harness.advance(.milliseconds(generator.number(in: 1...40)))
      if generator.oneIn(20) { harness.cut() }
    }
    let store = harness.store
    let comment: Comment = "seed \(seed)"
    #expect(harness.recorder.failures.isEmpty, comment)
    #expect(harness.recorder.replies.sorted() == (0..<400).map { UInt64($0) }, comment)
    for case .replied(let tag, _, let payload) in harness.recorder.events {
      #expect(StoreClientTests.tag(of: payload) == tag, comment)
    }
    // One session, with consecutive counters, each always of the same request.
    #expect(store.applied.count == 1, comment)
    let applied = store.applied.values.first ?? [:]
    #expect(applied.keys.sorted() == (0..<commands).map { UInt64($0 + 1) }, comment)
    var highest: UInt64 = 0
    var seen: Set<UInt64> = []
    for connection in Set(store.requests.map(\.connection)).sorted() {
      let counters = store.requests.filter { $0.connection == connection }.compactMap(\.counter)
      #expect(counters == counters.sorted() && Set(counters).count == counters.count, comment)
    }
    for request in store.requests {
      #expect(request.issued == issued(tag(of: request.rest)), comment)
      #expect(request.thread == thread(tag(of: request.rest), request.kind), comment)
      guard let counter = request.counter else { continue }
      #expect(applied[counter]!.rest == request.rest, comment)
      // A first send has the next counter; a repeated counter is marked as a resend.
      if seen.contains(counter) { #expect(request.isResend, comment) }
      if counter > highest {
        #expect(counter == highest + 1, comment)
        highest = counter
      }
      seen.insert(counter)
    }
    // In order of issue: tags rise with counters.
    let order = applied.sorted { $0.key < $1.key }.map { tag(of: $0.value.rest) }
    #expect(order == order.sorted(), comment)
    #expect(harness.client.stats.inFlight == 0, comment)
    #expect(harness.client.stats.retainedBytes == 0, comment)
  }
}
