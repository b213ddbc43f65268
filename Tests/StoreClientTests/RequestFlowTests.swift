import NIOCore
import NIOEmbedded
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import StoreClient

/// Requests and replies over an opened connection.
struct RequestFlowTests {
  @Test func requestEncodingFollowsFramesMd() {
    let harness = ClientHarness()
    harness.open()
    #expect(harness.client.isReady)
    #expect(harness.client.shardCount == 16)
    harness.command(7, cid: "messaging:general")
    harness.query(8, cid: "team:x")
    let types = harness.client.send(.listChannelTypes, to: .shard(ShardID(3), name: nil), tag: 9) { _ in }
    #expect(types)
    let name = Array("team".utf8)
    let patched = harness.client.send(
      .patchChannelType,
      to: .shard(ShardID(5), name: name.span.bytes),
      tag: 10
    ) {
      $0.writeInteger(UInt64(10))
    }
    #expect(patched)
    #expect(harness.store.requests.isEmpty)
    harness.flush()
    let requests = harness.store.requests
    #expect(requests.map(\.kind) == [.markRead, .getChannel, .listChannelTypes, .patchChannelType])
    #expect(requests.map(\.counter) == [1, nil, nil, 2])
    #expect(requests.map(\.name) == ["messaging:general", "team:x", "", "team"])
    #expect(requests[0].shard == .owning(Array("messaging:general".utf8).span.bytes, count: 16))
    #expect(requests[2].shard == ShardID(3))
    #expect(requests[3].shard == ShardID(5))
    #expect(harness.recorder.replies == [7, 8, 9, 10])
    #expect(harness.recorder.events.last == .complete)
    #expect(harness.client.stats.inFlight == 0)
    #expect(harness.client.stats.retainedBytes == 0)
  }

  @Test func repliesMayComeInAnyOrder() {
    let harness = ClientHarness()
    harness.store.holdsReplies = true
    harness.open()
    for tag in 1...100 { harness.command(UInt64(tag)) }
    harness.flush()
    #expect(harness.client.stats.inFlight == 100)
    var generator = SplitMix64(printingSeedOf: "replies in any order")
    let order = generator.shuffled(harness.store.waiting)
    for request in order { harness.connection!.reply(request) }
    harness.pump()
    #expect(harness.recorder.replies == order.map { tag(of: $0.rest) })
    for case .replied(let tag, let kind, let payload) in harness.recorder.events {
      #expect(kind == .markRead)
      #expect(StoreClientTests.tag(of: payload) == tag)
    }
    #expect(harness.client.stats.inFlight == 0)
    #expect(harness.client.stats.retainedBytes == 0)
  }

  @Test func repliesAreParsedFromAnyPieces() {
    for piece in [1, 2, 3, 7, 11, 12, 13, 64, Int.max] {
      let harness = ClientHarness()
      harness.pieceMax = piece
      harness.open()
      for tag in 1...20 { harness.command(UInt64(tag), bytes: 8 + Int(tag) * 5) }
      harness.flush()
      #expect(harness.recorder.replies == (1...20).map { UInt64($0) }, "in pieces of \(piece)")
    }
  }

  @Test func errorFramesFailOnlyTheirRequest() {
    let harness = ClientHarness()
    harness.store.holdsReplies = true
    harness.open()
    harness.command(1)
    harness.command(2)
    harness.query(3)
    harness.flush()
    let waiting = harness.store.waiting
    var bytes = ByteBuffer()
    bytes.writeError(.notAMember, correlation: waiting[0].correlation, detail: "carol")
    bytes.writeError(.busy, correlation: waiting[2].correlation, retryAfterMilliseconds: 250)
    harness.deliver(bytes)
    #expect(
      harness.recorder.failures == [
        1: .refused(.notAMember, retryAfterMilliseconds: 0, detail: "carol"),
        3: .refused(.busy, retryAfterMilliseconds: 250, detail: ""),
      ]
    )
    harness.connection!.reply(waiting[1])
    harness.pump()
    #expect(harness.recorder.replies == [2])
    #expect(harness.attempts == [0])
  }

  @Test func unknownErrorCodesFailTheRequest() {
    let harness = ClientHarness()
    harness.store.holdsReplies = true
    harness.open()
    harness.query(1)
    harness.flush()
    var bytes = ByteBuffer()
    bytes.writeFrame(FrameHeader(.error, correlation: harness.store.waiting[0].correlation)) { buffer in
      buffer.writeVarint(UInt64(999))
      buffer.writeVarint(UInt64(0))
      buffer.writeField("news")
    }
    harness.deliver(bytes)
    #expect(
      harness.recorder.failures == [
        1: .refused(.outcomeUnknown, retryAfterMilliseconds: 0, detail: "error code 999")
      ]
    )
  }

  /// A request that the store refuses to read would close each connection that it is sent on.
  @Test func requestsThatCloseTheConnectionAreNotResent() {
    let harness = ClientHarness()
    harness.store.holdsReplies = true
    harness.open()
    harness.command(1)
    harness.command(2)
    harness.flush()
    var bytes = ByteBuffer()
    bytes.writeError(.malformedFrame, correlation: harness.store.waiting[0].correlation)
    harness.deliver(bytes)
    #expect(
      harness.recorder.failures == [1: .refused(.malformedFrame, retryAfterMilliseconds: 0, detail: "")]
    )
    harness.store.holdsReplies = false
    harness.advance(.milliseconds(100))
    #expect(harness.recorder.replies == [2])
    #expect(harness.store.requests.map(\.counter) == [1, 2, 2])
  }

  @Test func lowerWindowApplies() {
    for (own, stores, expected) in [(10, 1024, 10), (1024, 10, 10)] {
      let harness = ClientHarness { $0.inFlightMax = own }
      harness.store.window = UInt32(stores)
      harness.store.holdsReplies = true
      harness.open()
      let accepted = (1...20).map { harness.command(UInt64($0)) }
      #expect(accepted.filter { $0 }.count == expected)
      #expect(Array(accepted.prefix(expected)) == Array(repeating: true, count: expected))
      harness.flush()
      #expect(harness.store.requests.count == expected)
      harness.connection!.reply(harness.store.waiting[4])
      harness.pump()
      #expect(harness.command(100))
      #expect(!harness.command(101))
      harness.flush()
      #expect(harness.store.requests.last?.counter == UInt64(expected + 1))
      #expect(harness.recorder.failures.isEmpty)
    }
  }

  @Test func requestsWaitForSmallerWindow() {
    let harness = ClientHarness { $0.inFlightMax = 50 }
    for tag in 1...30 { harness.command(UInt64(tag)) }
    harness.store.window = 8
    harness.store.holdsReplies = true
    harness.open()
    #expect(harness.store.requests.count == 8)
    while !harness.store.waiting.isEmpty {
      let first = harness.store.waiting.removeFirst()
      harness.connection!.reply(first)
      harness.pump()
      #expect(harness.store.waiting.count <= 8)
    }
    #expect(harness.recorder.replies == (1...30).map { UInt64($0) })
    #expect(harness.store.requests.map(\.counter) == (1...30).map { UInt64($0) })
    #expect(harness.store.requests.allSatisfy { !$0.isResend })
  }

  @Test func requestsQueueUntilTheFirstConnection() {
    let harness = ClientHarness()
    harness.down = [0]
    harness.client.start()
    for tag in 1...5 { harness.command(UInt64(tag), cid: "messaging:c\(tag)") }
    harness.client.flush()
    harness.advance(.milliseconds(300))
    #expect(harness.recorder.events.isEmpty)
    harness.down = []
    harness.advance(.milliseconds(1000))
    #expect(harness.recorder.replies == [1, 2, 3, 4, 5])
    for request in harness.store.requests {
      #expect(request.shard == .owning(Array(request.name.utf8).span.bytes, count: 16))
    }
    #expect(harness.store.requests.map(\.counter) == [1, 2, 3, 4, 5])
  }

  @Test func oversizeFramesFailAlone() {
    let harness = ClientHarness()
    harness.store.frameLengthMax = 2000
    harness.open()
    #expect(harness.command(1, bytes: 3000))
    #expect(harness.command(2, bytes: 1900))
    harness.flush()
    #expect(harness.recorder.replies == [2])
    guard case .refused(.frameTooLarge, _, _)? = harness.recorder.failures[1] else {
      Issue.record("not refused: \(harness.recorder.events)")
      return
    }
    #expect(harness.store.requests.map(\.counter) == [1])
  }

  /// One unanswered request retains its batch; the total of such batches is bounded.
  @Test func retainedBytesAreBounded() {
    let harness = ClientHarness()
    harness.store.holdsReplies = true
    harness.open()
    var sent: UInt64 = 0
    // Each batch has one large request, and a small one that stays unanswered.
    while harness.command(sent, bytes: 8), harness.command(sent + 1, bytes: 900_000), sent < 1000 {
      harness.flush()
      harness.connection!.reply(harness.store.waiting.last!)
      harness.pump()
      sent += 2
    }
    #expect(sent > 40)
    #expect(sent < 1000)
    #expect(harness.client.stats.retainedBytes <= StoreClientLimits.retainedBytesMax + (2 << 20))
    harness.flush()
    for request in harness.store.waiting where request.rest.count == 8 { harness.connection!.reply(request) }
    harness.pump()
    #expect(harness.command(5000))
  }

  @Test func delegateCanSendReentrantly() {
    let harness = ClientHarness()
    var left: UInt64 = 200
    harness.recorder.onEvent = { event in
      switch event {
      case .replied where left > 0:
        left -= 1
        harness.command(1000 - left)
      case .complete:
        harness.client.flush()
      default:
        break
      }
    }
    harness.open()
    for tag in 1...3 { harness.command(UInt64(tag)) }
    harness.flush()
    #expect(harness.recorder.replies.count == 203)
    #expect(harness.store.requests.map(\.counter) == (1...203).map { UInt64($0) })
    harness.recorder.onEvent = nil
  }

  @Test func closingFailsPendingRequests() throws {
    let harness = ClientHarness()
    harness.store.holdsReplies = true
    harness.open()
    harness.command(1)
    harness.query(2)
    harness.flush()
    harness.command(3)
    let done = harness.client.close()
    harness.loop.run()
    try done.wait()
    #expect(harness.recorder.failures == [1: .outcomeUnknown, 2: .unavailable, 3: .unavailable])
    #expect(!harness.client.isReady)
    #expect(!harness.command(4))
    harness.client.flush()
    try harness.client.close().wait()
    harness.advance(.seconds(20))
    #expect(harness.attempts == [0])
  }

  @Test func delegateCanCloseReentrantly() {
    let harness = ClientHarness()
    harness.recorder.onEvent = { event in
      if case .replied(2, _, _) = event { _ = harness.client.close() }
    }
    harness.open()
    for tag in 1...4 { harness.command(UInt64(tag)) }
    harness.flush()
    #expect(harness.recorder.replies == [1, 2])
    #expect(harness.recorder.failures == [3: .outcomeUnknown, 4: .outcomeUnknown])
    harness.recorder.onEvent = nil
  }
}
