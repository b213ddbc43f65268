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
    let world = ClientWorld()
    world.open()
    #expect(world.client.isReady)
    #expect(world.client.shardCount == 16)
    world.command(7, cid: "messaging:general")
    world.query(8, cid: "team:x")
    let types = world.client.send(.listChannelTypes, to: .shard(ShardID(3), name: nil), token: 9) { _ in }
    #expect(types)
    let name = Array("team".utf8)
    let patched = world.client.send(
      .patchChannelType,
      to: .shard(ShardID(5), name: name.span.bytes),
      token: 10
    ) {
      $0.writeInteger(UInt64(10))
    }
    #expect(patched)
    #expect(world.store.requests.isEmpty)
    world.flush()
    let requests = world.store.requests
    #expect(requests.map(\.kind) == [.markRead, .getChannel, .listChannelTypes, .patchChannelType])
    #expect(requests.map(\.counter) == [1, nil, nil, 2])
    #expect(requests.map(\.name) == ["messaging:general", "team:x", "", "team"])
    #expect(requests[0].shard == .owning(Array("messaging:general".utf8).span.bytes, count: 16))
    #expect(requests[2].shard == ShardID(3))
    #expect(requests[3].shard == ShardID(5))
    #expect(world.recorder.replies == [7, 8, 9, 10])
    #expect(world.recorder.events.last == .complete)
    #expect(world.client.stats.inFlight == 0)
    #expect(world.client.stats.retainedBytes == 0)
  }

  @Test func repliesMayComeInAnyOrder() {
    let world = ClientWorld()
    world.store.holdsReplies = true
    world.open()
    for token in 1...100 { world.command(UInt64(token)) }
    world.flush()
    #expect(world.client.stats.inFlight == 100)
    var generator = SplitMix64(printingSeedOf: "replies in any order")
    let order = world.store.waiting.shuffled(using: &generator)
    for request in order { world.connection!.answer(request) }
    world.pump()
    #expect(world.recorder.replies == order.map { token(of: $0.rest) })
    for case .replied(let token, let kind, let payload) in world.recorder.events {
      #expect(kind == .markReadReply)
      #expect(StoreClientTests.token(of: payload) == token)
    }
    #expect(world.client.stats.inFlight == 0)
    #expect(world.client.stats.retainedBytes == 0)
  }

  @Test func repliesAreParsedFromAnyPieces() {
    for piece in [1, 2, 3, 7, 11, 12, 13, 64, Int.max] {
      let world = ClientWorld()
      world.pieceMax = piece
      world.open()
      for token in 1...20 { world.command(UInt64(token), bytes: 8 + Int(token) * 5) }
      world.flush()
      #expect(world.recorder.replies == (1...20).map { UInt64($0) }, "in pieces of \(piece)")
    }
  }

  @Test func errorFramesFailOnlyTheirRequest() {
    let world = ClientWorld()
    world.store.holdsReplies = true
    world.open()
    world.command(1)
    world.command(2)
    world.query(3)
    world.flush()
    let waiting = world.store.waiting
    var bytes = ByteBuffer()
    bytes.writeError(.notAMember, correlation: waiting[0].correlation, detail: "carol")
    bytes.writeError(.busy, correlation: waiting[2].correlation, retryAfterMilliseconds: 250)
    world.deliver(bytes)
    #expect(
      world.recorder.failures == [
        1: .refused(.notAMember, retryAfterMilliseconds: 0, detail: "carol"),
        3: .refused(.busy, retryAfterMilliseconds: 250, detail: ""),
      ]
    )
    world.connection!.answer(waiting[1])
    world.pump()
    #expect(world.recorder.replies == [2])
    #expect(world.attempts == [0])
  }

  @Test func unknownErrorCodesFailTheRequest() {
    let world = ClientWorld()
    world.store.holdsReplies = true
    world.open()
    world.query(1)
    world.flush()
    var bytes = ByteBuffer()
    bytes.writeFrame(FrameHeader(.error, correlation: world.store.waiting[0].correlation)) { buffer in
      buffer.writeVarint(UInt64(999))
      buffer.writeVarint(UInt64(0))
      buffer.writeField("news")
    }
    world.deliver(bytes)
    #expect(
      world.recorder.failures == [
        1: .refused(.outcomeUnknown, retryAfterMilliseconds: 0, detail: "error code 999")
      ]
    )
  }

  /// A request that the store refuses to read would close each connection that it is sent on.
  @Test func requestsThatCloseTheConnectionAreNotResent() {
    let world = ClientWorld()
    world.store.holdsReplies = true
    world.open()
    world.command(1)
    world.command(2)
    world.flush()
    var bytes = ByteBuffer()
    bytes.writeError(.malformedFrame, correlation: world.store.waiting[0].correlation)
    world.deliver(bytes)
    #expect(
      world.recorder.failures == [1: .refused(.malformedFrame, retryAfterMilliseconds: 0, detail: "")]
    )
    world.store.holdsReplies = false
    world.advance(.milliseconds(100))
    #expect(world.recorder.replies == [2])
    #expect(world.store.requests.map(\.counter) == [1, 2, 2])
  }

  @Test func lowerWindowApplies() {
    for (own, stores, expected) in [(10, 1024, 10), (1024, 10, 10)] {
      let world = ClientWorld { $0.inFlightMax = own }
      world.store.window = UInt32(stores)
      world.store.holdsReplies = true
      world.open()
      let accepted = (1...20).map { world.command(UInt64($0)) }
      #expect(accepted.filter { $0 }.count == expected)
      #expect(Array(accepted.prefix(expected)) == Array(repeating: true, count: expected))
      world.flush()
      #expect(world.store.requests.count == expected)
      world.connection!.answer(world.store.waiting[4])
      world.pump()
      #expect(world.command(100))
      #expect(!world.command(101))
      world.flush()
      #expect(world.store.requests.last?.counter == UInt64(expected + 1))
      #expect(world.recorder.failures.isEmpty)
    }
  }

  @Test func requestsWaitForASmallerWindow() {
    let world = ClientWorld { $0.inFlightMax = 50 }
    for token in 1...30 { world.command(UInt64(token)) }
    world.store.window = 8
    world.store.holdsReplies = true
    world.open()
    #expect(world.store.requests.count == 8)
    while !world.store.waiting.isEmpty {
      let first = world.store.waiting.removeFirst()
      world.connection!.answer(first)
      world.pump()
      #expect(world.store.waiting.count <= 8)
    }
    #expect(world.recorder.replies == (1...30).map { UInt64($0) })
    #expect(world.store.requests.map(\.counter) == (1...30).map { UInt64($0) })
    #expect(world.store.requests.allSatisfy { !$0.isResend })
  }

  @Test func requestsQueueUntilTheFirstConnection() {
    let world = ClientWorld()
    world.down = [0]
    world.client.start()
    for token in 1...5 { world.command(UInt64(token), cid: "messaging:c\(token)") }
    world.client.flush()
    world.advance(.milliseconds(300))
    #expect(world.recorder.events.isEmpty)
    world.down = []
    world.advance(.milliseconds(1000))
    #expect(world.recorder.replies == [1, 2, 3, 4, 5])
    for request in world.store.requests {
      #expect(request.shard == .owning(Array(request.name.utf8).span.bytes, count: 16))
    }
    #expect(world.store.requests.map(\.counter) == [1, 2, 3, 4, 5])
  }

  @Test func oversizeFramesFailAlone() {
    let world = ClientWorld()
    world.store.frameLengthMax = 2000
    world.open()
    #expect(world.command(1, bytes: 3000))
    #expect(world.command(2, bytes: 1900))
    world.flush()
    #expect(world.recorder.replies == [2])
    guard case .refused(.frameTooLarge, _, _)? = world.recorder.failures[1] else {
      Issue.record("not refused: \(world.recorder.events)")
      return
    }
    #expect(world.store.requests.map(\.counter) == [1])
  }

  /// One unanswered request retains its batch; the total of such batches is bounded.
  @Test func retainedBytesAreBounded() {
    let world = ClientWorld()
    world.store.holdsReplies = true
    world.open()
    var sent: UInt64 = 0
    // Each batch has one large request, and a small one that stays unanswered.
    while world.command(sent, bytes: 8), world.command(sent + 1, bytes: 900_000), sent < 1000 {
      world.flush()
      world.connection!.answer(world.store.waiting.last!)
      world.pump()
      sent += 2
    }
    #expect(sent > 40)
    #expect(sent < 1000)
    #expect(world.client.stats.retainedBytes <= StoreClientLimits.retainedBytesMax + (2 << 20))
    world.flush()
    for request in world.store.waiting where request.rest.count == 8 { world.connection!.answer(request) }
    world.pump()
    #expect(world.command(5000))
  }

  @Test func delegateCanSendReentrantly() {
    let world = ClientWorld()
    var left: UInt64 = 200
    world.recorder.onEvent = { event in
      switch event {
      case .replied where left > 0:
        left -= 1
        world.command(1000 - left)
      case .complete:
        world.client.flush()
      default:
        break
      }
    }
    world.open()
    for token in 1...3 { world.command(UInt64(token)) }
    world.flush()
    #expect(world.recorder.replies.count == 203)
    #expect(world.store.requests.map(\.counter) == (1...203).map { UInt64($0) })
    world.recorder.onEvent = nil
  }

  @Test func closingFailsPendingRequests() throws {
    let world = ClientWorld()
    world.store.holdsReplies = true
    world.open()
    world.command(1)
    world.query(2)
    world.flush()
    world.command(3)
    let done = world.client.close()
    world.loop.run()
    try done.wait()
    #expect(world.recorder.failures == [1: .outcomeUnknown, 2: .unavailable, 3: .unavailable])
    #expect(!world.client.isReady)
    #expect(!world.command(4))
    world.client.flush()
    try world.client.close().wait()
    world.advance(.seconds(20))
    #expect(world.attempts == [0])
  }

  @Test func delegateCanCloseReentrantly() {
    let world = ClientWorld()
    world.recorder.onEvent = { event in
      if case .replied(2, _, _) = event { _ = world.client.close() }
    }
    world.open()
    for token in 1...4 { world.command(UInt64(token)) }
    world.flush()
    #expect(world.recorder.replies == [1, 2])
    #expect(world.recorder.failures == [3: .outcomeUnknown, 4: .outcomeUnknown])
    world.recorder.onEvent = nil
  }
}
