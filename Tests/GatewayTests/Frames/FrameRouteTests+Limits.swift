import Foundation
import HTTP2Session
import NIOCore
import NIOPosix
import Operations
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// Limits of streams and of frames in flight, and the end of streams.
extension FrameRouteTests {
  @Test func configuredLimitsAreReported() async throws {
    var limits = GatewayLimits()
    limits.entriesPerRequest = 2
    limits.rowsPerPage = 7
    limits.noteBytes = 12_005
    try await TestGateway.run(limits: limits) { gateway in
      let stream = try await gateway.client.begin()
      var frames = TestFrames()
      frames.add(.acknowledge, 1) {
        $0.writeField("bob")
        $0.writeField("")
        $0.writeVarint(3)
        for _ in 0..<3 { $0.writeField("m1") }
      }
      frames.add(.acknowledge, 2) {
        $0.writeField("bob")
        $0.writeField(String(repeating: "n", count: 12_006))
        $0.writeVarint(1)
        $0.writeField("m1")
      }
      frames.add(.readState, 3) {
        $0.writeViewer(RawSpan(), isServer: true)
        $0.writeVarint(8)
        $0.writeOptional(nil)
      }
      try await gateway.client.send(frames.bytes, stream)
      try await gateway.client.finish(stream)
      #expect(
        await stream.verdicts(4) == [
          "1 invalid_field messages: 1 to 2", "2 invalid_field note: at most 12,005 bytes of UTF-8",
          "3 invalid_field limit: 1 to 7", "end",
        ]
      )
    }
  }

  @Test func lowInFlightLimitStillAnswersAllFrames() async throws {
    var limits = GatewayLimits()
    limits.framesInFlight = 2
    limits.streamedInFlight = 3
    limits.streamReplyBytes = 1
    try await TestGateway.run(limits: limits) { gateway in
      try await gateway.setUp("messaging:c", members: ["bob"], messages: ["m1"])
      let streams = [
        try await gateway.client.begin(), try await gateway.client.begin(), try await gateway.client.begin(),
      ]
      var frames = TestFrames()
      for index in 0..<500 { frames.mark(UInt32(index)) }
      for stream in streams {
        try await gateway.client.send(frames.bytes, stream)
        try await gateway.client.finish(stream)
      }
      for stream in streams {
        let verdicts = await stream.verdicts(501)
        #expect(verdicts == (0..<500).map { "\($0) markRead" } + ["end"])
      }
    }
  }

  /// No store reply wakes the stream, because no frame needs the store, and the body has ended. The stream resumes
  /// itself.
  @Test func locallyAnsweredFramesDoNotStallStream() async throws {
    var limits = GatewayLimits()
    limits.streamReplyBytes = 1_024
    try await TestGateway.run(limits: limits) { gateway in
      let stream = try await gateway.client.begin()
      var frames = TestFrames()
      for index in 0..<500 { frames.add(.getUser, UInt32(index)) }
      try await gateway.client.send(frames.bytes, stream)
      try await gateway.client.finish(stream)
      let verdicts = await stream.verdicts(501)
      #expect(
        verdicts == (0..<500).map { "\($0) not_implemented this frame kind is not accepted here" } + ["end"]
      )
    }
  }

  /// There are more frames than a stream may process in one turn, while a request waits for a silent store. The stream
  /// resumes itself.
  @Test func streamContinuesAfterItsTurn() async throws {
    try await TestGateway.run { gateway in
      try await gateway.store.set(.silent)
      let stream = try await gateway.client.begin()
      var frames = TestFrames()
      frames.mark(0)
      let count = 3 * RequestStreamState.itemsPerTurn
      for index in 1...count { frames.add(.getUser, UInt32(index)) }
      try await gateway.client.send(frames.bytes, stream)
      let verdicts = await stream.verdicts(count)
      #expect(verdicts == (1...count).map { "\($0) not_implemented this frame kind is not accepted here" })
    }
  }

  @Test func framesInFlightPerStreamAreLimited() async throws {
    var limits = GatewayLimits()
    limits.framesInFlight = 2
    try await TestGateway.run(limits: limits) { gateway in
      try await gateway.store.set(.silent)
      let stream = try await gateway.client.begin()
      var frames = TestFrames()
      for index in 1...5 { frames.mark(UInt32(index)) }
      try await gateway.client.send(frames.bytes, stream)
      // A later request of another stream reaches the store before further ones of this stream.
      let other = try await gateway.client.begin()
      frames.bytes.clear()
      frames.add(.getChannel, 1)
      try await gateway.client.send(frames.bytes, other)
      var log: [FrameKind] = []
      try await eventually("the store has the query of the other stream") {
        log += try await gateway.store.takeLog()
        return log.last == .getChannel
      }
      #expect(log == [.markRead, .markRead, .getChannel])
    }
  }

  @Test func streamEndsOnTokenExpiryAndDrain() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["bob"], messages: ["m1"])
      let expiry = Int(Date().timeIntervalSince1970) + 600
      let short = try await gateway.client.begin(
        token: TestTokens.make("{\"server\":true,\"exp\":\(expiry)}")
      )
      let long = try await gateway.client.begin()
      var frames = TestFrames()
      frames.mark(1)
      try await gateway.client.send(frames.bytes, short)
      try await gateway.client.send(frames.bytes, long)
      #expect(await short.verdict() == "1 markRead")
      #expect(await long.verdict() == "1 markRead")
      gateway.clock.advance(by: .seconds(601))
      #expect(await short.verdicts(2) == ["0 authentication_failed the token has expired", "end"])
      let drained = try await gateway.eventLoop.submit { gateway.loop.value.drain() }.get()
      #expect(await long.verdicts(2) == ["0 drain", "end"])
      try await drained.value("the end of draining")
    }
  }

  @Test func streamsBeyondLimitAreRefused() async throws {
    var limits = GatewayLimits()
    limits.requestStreams = 1
    try await TestGateway.run(limits: limits) { gateway in
      let first = try await gateway.client.begin()
      var frames = TestFrames()
      frames.add(.getChannel, 1)
      try await gateway.client.send(frames.bytes, first)
      #expect(await first.verdict() == "1 channel_not_found")
      let second = try await gateway.client.begin()
      // The gateway reads a refused body to its end.
      try await gateway.client.finish(second)
      _ = await second.frame()
      #expect(second.status == 503)
      try await gateway.client.reset(first)
      // The reset and the next request arrive on one connection, in this order.
      let third = try await gateway.client.begin()
      try await gateway.client.send(frames.bytes, third)
      #expect(await third.verdict() == "1 channel_not_found")
    }
  }

  @Test func oneTokenCannotTakeAllStreams() async throws {
    var limits = GatewayLimits()
    limits.requestStreams = 4
    try await TestGateway.run(limits: limits) { gateway in
      var frames = TestFrames()
      frames.add(.getChannel, 1)
      func isOpened(_ token: String) async throws -> Bool {
        let stream = try await gateway.client.begin(token: token)
        try await gateway.client.send(frames.bytes, stream)
        try await eventually("the stream is answered") { stream.status != 0 }
        return stream.status == 200
      }
      var opened: [Bool] = []
      for _ in 0..<3 { opened.append(try await isOpened(TestTokens.server)) }
      opened.append(try await isOpened(TestTokens.make(#"{"server":true,"jti":"another"}"#)))
      #expect(opened == [true, true, false, true])
    }
  }

  @Test func resetStreamLeavesNoState() async throws {
    try await TestGateway.run(deadline: TestGateway.shortDeadline) { gateway in
      try await gateway.store.set(.silent)
      let stream = try await gateway.client.begin()
      var frames = TestFrames()
      for index in 0..<10 { frames.mark(UInt32(index)) }
      try await gateway.client.send(frames.bytes, stream)
      try await eventually("the store has a mark") { try await !gateway.store.takeLog().isEmpty }
      try await gateway.client.reset(stream)
      #expect(await stream.verdict() == "end")
      // A new stream may reuse the slot. It does not receive the old stream's answers.
      let other = try await gateway.client.begin()
      frames.bytes.clear()
      frames.add(.getChannel, 77)
      try await gateway.client.send(frames.bytes, other)
      #expect(await other.verdict() == "77 unavailable")
      try await gateway.client.finish(other)
      #expect(await other.verdict() == "end")
      let left = try await gateway.eventLoop.submit {
        (gateway.loop.value.streams.inFlight, gateway.loop.value.streams.count)
      }.get()
      #expect(left == (0, 0))
    }
  }
}
