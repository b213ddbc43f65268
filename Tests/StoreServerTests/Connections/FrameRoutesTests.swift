import NIOCore
import NIOEmbedded
import ReceiptWire
import StoreEngine
import Testing

@testable import StoreServer

/// Requests for the shards of two loops, on a connection of the first one, and connections that close meanwhile.
@Suite struct FrameRoutesTests {
  // MARK: - Forwarding

  @Test func eachLoopAnswersItsRequestsInOrder() throws {
    let harness = try ServerHarness(loops: 2)
    let gateway = try harness.open()
    gateway.send(
      gateway.frames.note("a", of: 0),
      gateway.frames.note("b", of: 1),
      gateway.frames.known("b", of: 1),
      gateway.frames.known("c", of: 0),
      gateway.frames.note("d", of: 1)
    )
    #expect(gateway.take() == ["4 not known"])
    harness.loops[0].run()
    #expect(gateway.take() == ["1 noted"])
    #expect(harness.requests(at: 1) == 0)
    harness.loops[1].run()
    #expect(harness.requests(at: 1) == 3)
    #expect(gateway.take() == [], "the connection's own loop writes the replies")
    harness.loops[0].run()
    #expect(gateway.take() == ["2 noted", "3 known", "5 noted"])
    #expect(harness.remains == [])
  }

  @Test func requestsForAnotherLoopLeaveAtEndOfRead() throws {
    let harness = try ServerHarness(loops: 2)
    let gateway = try harness.open()
    gateway.read(gateway.frames.known("a", of: 1))
    gateway.read(gateway.frames.known("b", of: 1))
    harness.run()
    #expect(harness.requests(at: 1) == 0)
    gateway.endRead()
    harness.run()
    #expect(gateway.take() == ["1 not known", "2 not known"])
    // The end of the next read has nothing to forward.
    gateway.endRead()
    harness.run()
    #expect(harness.requests(at: 1) == 2)
  }

  @Test func forwardedFramesSplitAtEveryByteAreAnswered() throws {
    func frames(_ frames: inout GatewayFrames) -> ByteBuffer {
      ByteBuffer(
        joining: [
          frames.note("a", of: 1), frames.note("b", of: 0), frames.known("a", of: 1),
          frames.known("b", of: 0),
        ]
      )
    }
    var counted = GatewayFrames()
    for cut in 1..<frames(&counted).readableBytes {
      let harness = try ServerHarness(loops: 2)
      let gateway = try harness.open()
      var rest = frames(&gateway.frames)
      gateway.send(rest.readSlice(length: cut)!)
      gateway.send(rest)
      harness.run()
      #expect(
        gateway.take().sorted() == ["1 noted", "2 noted", "3 known", "4 known"],
        "split after byte \(cut)"
      )
    }
  }

  @Test func forwardedRequestsCountAgainstWindow() throws {
    let harness = try ServerHarness(loops: 2, window: 2)
    let gateway = try harness.open()
    gateway.send(
      gateway.frames.known("a", of: 1),
      gateway.frames.known("b", of: 1),
      gateway.frames.known("c", of: 1)
    )
    #expect(gateway.take() == ["3 busy, retry after 100 ms"])
    harness.run()
    #expect(gateway.take() == ["1 not known", "2 not known"])
    gateway.send(gateway.frames.known("d", of: 1))
    harness.run()
    #expect(gateway.take() == ["4 not known"])
  }

  /// The other loop finds the fault, so the frames before it are answered first.
  @Test func malformedForwardedRequestEndsConnection() throws {
    let harness = try ServerHarness(loops: 2)
    let gateway = try harness.open(session: 1)
    gateway.send(
      gateway.frames.note("a", of: 1),
      gateway.frames.malformedQuery(of: 1),
      gateway.frames.note("b", of: 1)
    )
    #expect(!gateway.isClosed)
    harness.run()
    #expect(gateway.take() == ["error malformed_frame"])
    #expect(gateway.isClosed)
    #expect(harness.remains == [])
    let other = try harness.open(session: 2)
    other.send(other.frames.known("a", of: 1), other.frames.known("b", of: 1))
    harness.run()
    #expect(other.take() == ["1 known", "2 not known"])
  }

  // MARK: - Connections that close

  /// When the connection closes, after two commands, for shard 0 and for shard 1, were read.
  private static let moments:
    [(name: String, until: @Sendable (ServerHarness, EmbeddedGateway) -> Void, isForwarded: Bool)] =
      [
        ("before the end of the read", { _, _ in }, false),
        ("before the commit of its own loop", { _, gateway in gateway.endRead() }, true),
        (
          "before the turn of the other loop",
          { harness, gateway in
            gateway.endRead()
            harness.loops[0].run()
          }, true
        ),
        (
          "while the reply of the other loop is on its way",
          { harness, gateway in
            gateway.endRead()
            harness.loops[1].run()
          }, true
        ),
      ]

  /// Commands that have reached their loop are applied; the connection leaves nothing behind.
  @Test(arguments: 0..<4)
  func closedConnectionLeavesNothingBehind(_ index: Int) throws {
    let row = Self.moments[index]
    let harness = try ServerHarness(loops: 2)
    let gateway = try harness.open(session: 1)
    gateway.read(gateway.frames.note("a", of: 0))
    gateway.read(gateway.frames.note("b", of: 1))
    row.until(harness, gateway)
    _ = gateway.take()
    gateway.close()
    // A turn that a read has begun and not ended ends with the next one, at the latest with a tick.
    harness.tick()
    #expect(harness.remains == [], "closed \(row.name)")
    #expect(gateway.take() == [], "closed \(row.name)")
    let other = try harness.open(session: 2)
    other.send(other.frames.known("b", of: 1))
    harness.run()
    #expect(other.take() == [row.isForwarded ? "1 known" : "1 not known"], "closed \(row.name)")
  }

  /// The first reply of the turn cannot be written. The socket closes the connection within that write, so the routes
  /// are gone before the turn's end has passed all of them.
  @Test func writeThatFailsAtEndOfTurnClosesConnection() throws {
    let harness = try ServerHarness(loops: 2)
    let gateway = try harness.open(session: 1)
    gateway.failNextWrite()
    gateway.send(
      gateway.frames.known("a", of: 0),
      gateway.frames.note("b", of: 1),
      gateway.frames.note("c", of: 0)
    )
    #expect(gateway.isClosed)
    #expect(harness.remains == [])
    #expect(gateway.take() == [])
    #expect(harness.requests(at: 1) == 0, "a closed connection forwards nothing")
    let other = try harness.open(session: 2)
    other.send(other.frames.known("c", of: 0), other.frames.known("b", of: 1))
    harness.run()
    #expect(other.take() == ["1 known", "2 not known"])
  }

  /// The write of a pong may fail within a read. The last bytes come before the frames behind the ping then: applied
  /// first, they would make these count as applied.
  @Test func lastBytesDoNotOvertakeFramesOfTheirRead() throws {
    let harness = try ServerHarness(loops: 2)
    let gateway = try harness.open(session: 1)
    let read = [gateway.frames.ping(), gateway.frames.note("a", of: 0)]
    let last = gateway.frames.note("b", of: 0)
    gateway.failNextWrite(lastBytes: last)
    gateway.send(ByteBuffer(joining: read))
    #expect(gateway.isClosed)
    #expect(harness.remains == [])
    let other = try harness.open(session: 2)
    other.send(other.frames.known("a", of: 0), other.frames.known("b", of: 0))
    harness.run()
    #expect(other.take() == ["1 not known", "2 not known"])
  }

  /// A socket delivers the peer's last bytes before it closes: their turn ends within the turn whose write failed.
  @Test func lastBytesOfFailedConnectionAreApplied() throws {
    let harness = try ServerHarness(loops: 2)
    let gateway = try harness.open(session: 1)
    let first = [gateway.frames.known("a", of: 0), gateway.frames.note("b", of: 1)]
    let last = [gateway.frames.note("c", of: 0), gateway.frames.note("d", of: 1)]
    gateway.failNextWrite(lastBytes: ByteBuffer(joining: last))
    gateway.send(ByteBuffer(joining: first))
    #expect(gateway.isClosed)
    #expect(harness.remains == [])
    let other = try harness.open(session: 2)
    other.send(
      other.frames.known("b", of: 1),
      other.frames.known("c", of: 0),
      other.frames.known("d", of: 1)
    )
    harness.run()
    #expect(other.take().sorted() == ["1 known", "2 known", "3 known"])
  }

  /// Two connections have replies in the same turn of a loop; the write to the first one fails.
  @Test func failedWriteLeavesOtherConnectionsTheirReplies() throws {
    let harness = try ServerHarness(loops: 2)
    let failing = try harness.open(session: 1)
    let other = try harness.open(session: 2)
    failing.send(failing.frames.note("a", of: 0))
    other.send(other.frames.note("b", of: 0), other.frames.note("c", of: 1))
    failing.failNextWrite()
    harness.run()
    #expect(failing.isClosed && failing.take() == [])
    #expect(other.take() == ["1 noted", "2 noted"])
    #expect(harness.remains == [])
  }
}
