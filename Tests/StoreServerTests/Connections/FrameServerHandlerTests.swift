import NIOCore
import NIOEmbedded
import ReceiptWire
import Testing

@testable import StoreServer

/// The store's end of one connection: the handshake, splitting the bytes into frames, refusals, the window.
@Suite struct FrameServerHandlerTests {
  // MARK: - Handshake

  @Test func handshakeSucceedsWholeAndByteByByte() throws {
    let harness = try ServerHarness(secrets: ["secret"])
    let whole = try harness.connect(session: 1)
    whole.send(whole.frames.hello())
    #expect(whole.take() == ["challenge with proof"])
    whole.send(whole.frames.proof("secret"))
    #expect(whole.take() == ["ready"])

    let drip = try harness.connect(session: 2)
    drip.sendBytewise(drip.frames.hello(age: 60_000))
    #expect(drip.take() == ["challenge with proof"])
    drip.sendBytewise(drip.frames.proof("secret"))
    #expect(drip.take() == ["resumed"])

    for gateway in [whole, drip] {
      gateway.send(gateway.frames.known("a"))
      #expect(gateway.take() == ["1 not known"])
    }
    #expect(harness.remains == [])
  }

  /// Without secrets a gateway need not wait for the challenge.
  @Test func handshakeAndRequestsOfOneReadAreAnswered() throws {
    let harness = try ServerHarness()
    let gateway = try harness.connect()
    gateway.send(
      gateway.frames.hello(),
      gateway.frames.proof(),
      gateway.frames.known("a"),
      gateway.frames.note("a"),
      gateway.frames.known("a")
    )
    #expect(gateway.take() == ["challenge", "ready", "1 not known"])
    harness.run()
    #expect(gateway.take() == ["2 noted", "3 known"])
  }

  private struct Refusal: CustomTestStringConvertible {
    var name: String
    var bytes: @Sendable (inout GatewayFrames) -> [ByteBuffer]
    var replies: [String]
    var testDescription: String { name }
  }

  private static let refusedHandshakes = [
    Refusal(name: "a proof before the hello", bytes: { [$0.proof()] }, replies: ["error handshake_required"]),
    Refusal(name: "a request", bytes: { [$0.known("a")] }, replies: ["error handshake_required"]),
    Refusal(name: "a ping", bytes: { [$0.ping()] }, replies: ["error handshake_required"]),
    Refusal(
      name: "two hellos",
      bytes: { [$0.hello(), $0.hello()] },
      replies: ["challenge with proof", "error handshake_required"]
    ),
    Refusal(
      name: "a request instead of the proof",
      bytes: { [$0.hello(), $0.known("a")] },
      replies: ["challenge with proof", "error handshake_required"]
    ),
    Refusal(
      name: "an empty proof",
      bytes: { [$0.hello(), $0.proof(), $0.known("a")] },
      replies: ["challenge with proof", "error authentication_failed"]
    ),
    Refusal(
      name: "a session that has expired",
      bytes: { [$0.hello(age: 60_001)] },
      replies: ["error session_expired"]
    ),
    Refusal(
      name: "a length above 4,096",
      bytes: { _ in [ByteBuffer(hex: "00001001")] },
      replies: ["error frame_too_large"]
    ),
    Refusal(
      name: "the start of a TLS handshake",
      bytes: { _ in [ByteBuffer(hex: "16030100")] },
      replies: ["error frame_too_large"]
    ),
    Refusal(
      name: "an unknown kind",
      bytes: { _ in [ByteBuffer(hex: "00000008 7f00")] },
      replies: ["error unknown_kind"]
    ),
  ]

  @Test(arguments: refusedHandshakes)
  private func refusedHandshakesCloseConnection(_ row: Refusal) throws {
    let harness = try ServerHarness(secrets: ["secret"])
    let whole = try harness.connect(session: 1)
    let drip = try harness.connect(session: 2)
    whole.send(ByteBuffer(joining: row.bytes(&whole.frames)))
    drip.sendBytewise(ByteBuffer(joining: row.bytes(&drip.frames)))
    for gateway in [whole, drip] {
      #expect(gateway.take() == row.replies, "\(row.name)")
      #expect(gateway.isClosed, "\(row.name)")
      gateway.send(gateway.frames.hello())
      #expect(gateway.take() == [], "\(row.name)")
    }
    #expect(harness.remains == [], "\(row.name)")
  }

  @Test func handshakesTimeOutAfterTenSeconds() throws {
    let harness = try ServerHarness()
    let open = try harness.open(session: 1)
    let silent = try harness.connect(session: 2)
    let half = try harness.connect(session: 3)
    half.send(half.frames.hello())
    #expect(half.take() == ["challenge"])
    harness.loops[0].advanceTime(by: .milliseconds(9_999))
    #expect(silent.take() == [] && half.take() == [])
    harness.loops[0].advanceTime(by: .milliseconds(1))
    #expect(silent.take() == ["error handshake_timeout"])
    #expect(half.take() == ["error handshake_timeout"])
    #expect(silent.isClosed && half.isClosed && !open.isClosed)
    #expect(harness.remains == [])
  }

  @Test func handshakesDuringReloadAreRefused() throws {
    let harness = try ServerHarness()
    let serving = harness.serving.replace(nil)
    let early = try harness.connect()
    early.open()
    #expect(early.take() == ["challenge", "error unavailable, retry after 500 ms"])
    #expect(early.isClosed)
    #expect(harness.remains == [])
    harness.serving.replace(serving)
    let late = try harness.connect()
    late.open()
    #expect(late.take() == ["challenge", "ready"])
  }

  /// The session's commands without a reply are sent again on its new connection, and are applied once.
  @Test func newConnectionOfSessionClosesItsOlderOne() throws {
    let harness = try ServerHarness()
    let old = try harness.open(session: 1)
    let other = try harness.open(session: 2)
    old.send(old.frames.note("a"))
    let new = try harness.open(session: 1)
    #expect(old.take() == ["error superseded"])
    #expect(old.isClosed && !other.isClosed)
    new.send(new.frames.note("a", resending: 1), new.frames.note("a"))
    harness.run()
    #expect(new.take() == ["1 noted", "2 was known"])
    #expect(old.take() == [])
    #expect(harness.remains == [])
  }

  // MARK: - Frames

  private static let replies = [
    "1 noted", "2 not known", "3 pong 8 bytes.", "4 invalid_field", "5 noted", "6 known",
  ]

  /// Commands, queries, a ping, and a frame that is longer than the others.
  private static func exchange(_ frames: inout GatewayFrames) -> ByteBuffer {
    ByteBuffer(
      joining: [
        frames.note("a"), frames.known("b"), frames.ping(), frames.known(keyBytes: 300), frames.note("c"),
        frames.known("a"),
      ]
    )
  }

  /// The replies to an exchange whose bytes are read in these pieces.
  private static func repliesToPieces(_ pieces: (ByteBuffer) -> [ByteBuffer]) throws -> [String] {
    let harness = try ServerHarness()
    let gateway = try harness.open()
    for piece in pieces(exchange(&gateway.frames)) { gateway.send(piece) }
    harness.run()
    return gateway.take().sorted()
  }

  @Test func framesOfOneReadAreAnswered() throws {
    #expect(try Self.repliesToPieces { [$0] } == Self.replies)
  }

  @Test func framesAreAnsweredByteByByte() throws {
    #expect(
      try Self.repliesToPieces { bytes in bytes.readableBytesView.map { ByteBuffer(bytes: [$0]) } }
        == Self.replies
    )
  }

  @Test func framesSplitAtEveryByteAreAnswered() throws {
    var frames = GatewayFrames()
    for cut in 1..<Self.exchange(&frames).readableBytes {
      let replies = try Self.repliesToPieces { bytes in
        var rest = bytes
        let first = rest.readSlice(length: cut)!
        return [first, rest]
      }
      #expect(replies == Self.replies, "split after byte \(cut)")
    }
  }

  @Test func partialFrameWaitsForItsRest() throws {
    let harness = try ServerHarness()
    let gateway = try harness.open()
    let (first, second) = (gateway.frames.known("a"), gateway.frames.known("b"))
    var third = gateway.frames.known("c")
    gateway.send(first, second, third.readSlice(length: 13)!)
    #expect(gateway.take() == ["1 not known", "2 not known"])
    gateway.send(third.readSlice(length: 2)!)
    #expect(gateway.take() == [])
    gateway.send(third, gateway.frames.known("d"))
    #expect(gateway.take() == ["3 not known", "4 not known"])
  }

  /// No read of a saturated link ends with a frame.
  @Test func readsCutWithinFramesKeepOnlyThePartialFrame() throws {
    let harness = try ServerHarness()
    let gateway = try harness.open()
    var rest = ByteBuffer()
    for correlation in 1...1_000 {
      var frame = gateway.frames.known("a")
      let start = frame.readSlice(length: 13)!
      gateway.send(rest, start)
      rest = frame
      #expect(gateway.take() == (correlation == 1 ? [] : ["\(correlation - 1) not known"]))
    }
    #expect(gateway.partialFrameCapacity <= 256)
  }

  /// A frame of almost 1 MiB, in reads of 32 KiB as from a socket.
  @Test func frameOfManyReadsIsAnswered() throws {
    let harness = try ServerHarness()
    let gateway = try harness.open()
    var bytes = gateway.frames.known(keyBytes: 1_048_000)
    while bytes.readableBytes > 32_768 {
      gateway.send(bytes.readSlice(length: 32_768)!)
      #expect(gateway.take() == [])
    }
    gateway.send(bytes, gateway.frames.known("a"))
    #expect(gateway.take() == ["1 invalid_field", "2 not known"])
  }

  @Test func shardsThatDoNotExistAreRefused() throws {
    let harness = try ServerHarness()
    let gateway = try harness.open()
    // webhook_known of shard 7, which has no owner.
    gateway.send(ByteBuffer(hex: "0000000a 2e00 0007 00000009 01 6b"), gateway.frames.known("a"))
    #expect(gateway.take() == ["9 wrong_shard", "1 not known"])
    #expect(!gateway.isClosed)
  }

  // MARK: - Frames that end the connection

  /// Each row has the fewest bytes that show the fault: of a header's fault, no byte of the payload.
  private static let faults: [(name: String, hex: String, reply: String)] = [
    ("length below 8", "00000007", "error malformed_frame"),
    ("length above the limit", "00100001", "error frame_too_large"),
    ("the greatest length", "ffffffff", "error frame_too_large"),
    ("unknown kind", "00000100 7f00", "error unknown_kind"),
    ("unknown flag", "00000100 2e80", "error malformed_frame"),
    ("a flag that pings do not have", "00000010 0504", "error malformed_frame"),
    ("a reply", "00000008 ae00 0000 00000001", "error unknown_kind"),
    ("a hello after the handshake", "00000008 0100 0000 00000000", "error unknown_kind"),
    ("a ping of 7 bytes", "0000000f 0500 0000 00000001 00000000000000", "error malformed_frame"),
    ("a request without its fields", "00000008 2e00 0000 00000001", "error malformed_frame"),
  ]

  /// Frames before the fault are answered, and frames behind it are ignored.
  @Test(arguments: faults)
  func faultsEndConnectionAfterEarlierFramesAreAnswered(_ row: (name: String, hex: String, reply: String)) throws {
    let harness = try ServerHarness()
    let gateway = try harness.open()
    gateway.send(
      gateway.frames.known("a"),
      gateway.frames.ping(),
      gateway.frames.known("b"),
      ByteBuffer(hex: row.hex),
      gateway.frames.known("c")
    )
    let replies = gateway.take()
    #expect(replies.dropLast().sorted() == ["1 not known", "2 pong 8 bytes.", "3 not known"], "\(row.name)")
    #expect(replies.last == row.reply, "\(row.name)")
    #expect(gateway.isClosed, "\(row.name)")
    #expect(harness.remains == [], "\(row.name)")
  }

  /// A header's fault is found before any byte of the payload was read, so no memory is kept for it.
  @Test(arguments: faults)
  func faultsAreFoundAtFirstByteThatShowsThem(_ row: (name: String, hex: String, reply: String)) throws {
    let harness = try ServerHarness()
    let gateway = try harness.open()
    var bytes = ByteBuffer(hex: row.hex)
    gateway.sendBytewise(bytes.readSlice(length: bytes.readableBytes - 1)!)
    #expect(gateway.take() == [] && !gateway.isClosed, "\(row.name)")
    gateway.send(bytes)
    #expect(gateway.take() == [row.reply], "\(row.name)")
    #expect(gateway.isClosed, "\(row.name)")
    gateway.send(gateway.frames.known("a"))
    #expect(gateway.take() == [], "\(row.name)")
    #expect(harness.remains == [], "\(row.name)")
  }

  /// The connection is gone before the commit that their replies wait for.
  @Test func commandsBeforeFaultAreApplied() throws {
    let harness = try ServerHarness()
    let gateway = try harness.open(session: 1)
    gateway.send(gateway.frames.note("a"), ByteBuffer(hex: "00000008 7f00"), gateway.frames.note("b"))
    harness.run()
    #expect(gateway.take() == ["error unknown_kind"])
    #expect(harness.remains == [])
    let other = try harness.open(session: 2)
    other.send(other.frames.known("a"), other.frames.known("b"))
    #expect(other.take() == ["1 known", "2 not known"])
  }

  // MARK: - Window and backpressure

  @Test func requestsBeyondWindowAreBusy() throws {
    let harness = try ServerHarness(window: 2)
    let gateway = try harness.open()
    gateway.send(
      gateway.frames.note("a"),
      gateway.frames.note("b"),
      gateway.frames.note("c"),
      gateway.frames.ping()
    )
    // The first two wait for their commit. A ping is no request.
    #expect(gateway.take() == ["4 pong 8 bytes.", "3 busy, retry after 100 ms"])
    gateway.send(gateway.frames.known("a"))
    #expect(gateway.take() == ["5 busy, retry after 100 ms"])
    harness.run()
    #expect(gateway.take() == ["1 noted", "2 noted"])
    // Both places are free again. The refused command was not applied.
    gateway.send(gateway.frames.known("c"), gateway.frames.note("c"), gateway.frames.known("c"))
    #expect(gateway.take() == ["8 busy, retry after 100 ms", "6 not known"])
    harness.run()
    #expect(gateway.take() == ["7 noted"])
  }

  @Test func refusalsOfOneReadAreWrittenTogether() throws {
    let harness = try ServerHarness(window: 1)
    let gateway = try harness.open()
    _ = gateway.takeWrites()
    gateway.send(ByteBuffer(joining: (0..<10).map { gateway.frames.note("\($0)") }))
    #expect(gateway.takeWrites().count == 1)
    #expect(gateway.take() == (2...10).map { "\($0) busy, retry after 100 ms" })
    gateway.send(gateway.frames.note("a"), gateway.frames.note("b"), ByteBuffer(hex: "00000008 7f00"))
    #expect(gateway.takeWrites().count == 2)
    #expect(
      gateway.take() == ["11 busy, retry after 100 ms", "12 busy, retry after 100 ms", "error unknown_kind"]
    )
    #expect(harness.remains == [])
  }

  /// Unwritten bytes are counted for events only.
  @Test func repliesHaveAPromiseOnlyWithSubscriptions() throws {
    let harness = try ServerHarness()
    let gateway = try harness.open()
    _ = gateway.takeWrites()
    gateway.send(gateway.frames.known("a"))
    #expect(gateway.takeWrites() == (1, 0))
    gateway.send(gateway.frames.subscribe("team:c"))
    harness.run()
    _ = gateway.takeWrites()
    gateway.send(gateway.frames.known("a"))
    #expect(gateway.takeWrites() == (1, 1))
  }

  /// Each connection has a window of its own.
  @Test func fullWindowDoesNotBlockOtherConnections() throws {
    let harness = try ServerHarness(window: 1)
    let full = try harness.open(session: 1)
    let other = try harness.open(session: 2)
    full.send(full.frames.note("a"), full.frames.known("b"))
    #expect(full.take() == ["2 busy, retry after 100 ms"])
    other.send(other.frames.known("b"))
    #expect(other.take() == ["1 not known"])
  }

  @Test func readingStopsWhileRepliesAreNotTaken() throws {
    let harness = try ServerHarness()
    let gateway = try harness.open()
    let channel = gateway.channel
    func readsAutomatically() -> Bool? {
      channel.options.last { $0.option is ChannelOptions.Types.AutoReadOption }?.value as? Bool
    }
    channel.isWritable = false
    channel.pipeline.fireChannelWritabilityChanged()
    #expect(readsAutomatically() == false)
    channel.isWritable = true
    channel.pipeline.fireChannelWritabilityChanged()
    #expect(readsAutomatically() == true)
  }
}
