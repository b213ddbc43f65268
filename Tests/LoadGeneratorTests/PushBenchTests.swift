import Glibc
import HTTP2Session
import NIOCore
import NIOPosix
import Operations
import ReceiptWire
import TestPrograms
import Testing

@testable import LoadGenerator

@Suite struct PushWalkTests {
  /// Apply a walk naively.
  private func applyEffects(_ walk: PushWalk) -> (moves: Int, count: Int, watermarks: Set<Int>) {
    var watermarks = [Int](repeating: 0, count: walk.pairs)
    var moves = 0
    for block in 0..<walk.blocks {
      let message = walk.message(ofBlock: block)
      for place in 0..<walk.pairs where watermarks[walk.user(at: place)] < message {
        watermarks[walk.user(at: place)] = message
        moves += 1
      }
    }
    return (moves, walk.blocks * walk.pairs, Set(watermarks))
  }

  @Test(arguments: [(1, 3, 2), (12, 3, 2), (13, 3, 2), (1_000, 7, 3), (1_000, 1, 1)])
  func halfOfTheWalkMovesAndAllReachTheLastMessage(_ atLeast: Int, _ channels: Int, _ members: Int) {
    let walk = PushWalk(atLeast: atLeast, channels: channels, members: members)
    let (moves, count, watermarks) = applyEffects(walk)
    #expect(walk.moves == moves && walk.count == count && count >= atLeast)
    #expect(count - atLeast < 2 * walk.pairs)
    #expect(watermarks == [walk.messages])
    let sends = (1...walk.messages).map(walk.sends(ofMessage:))
    #expect(sends.reduce(0, +) == walk.blocks)
    #expect(
      sends
        == (1...walk.messages).map { message in
          (0..<walk.blocks).count { walk.message(ofBlock: $0) == message }
        }
    )
  }

  @Test func blockContainsEveryMember() {
    let walk = PushWalk(atLeast: 1, channels: 5, members: 4)
    #expect(Set((0..<walk.pairs).map(walk.user(at:))) == Set(0..<20))
    #expect((0..<walk.pairs).allSatisfy { walk.user(at: $0) / 4 == walk.channel(at: $0) })
    #expect(walk.channel(at: 0) != walk.channel(at: 1))
  }
}

/// A walk of several pieces, with a ticket for each push ack.
private func bodies(_ walk: PushWalk, _ mode: PushMode) -> PushBodies {
  let perBlock = PushBodies.piecesPerBlock(walk)
  return PushBodies(
    walk,
    pieces: (0..<perBlock * walk.messages).map { number in
      let (message, piece) = (number / perBlock + 1, number % perBlock)
      let tickets = PushBodies.positions(walk, ofPiece: piece).map { "t\(message)-\($0)" }
      return PushBodies.piece(piece, ofMessage: message, walk, mode, tickets: mode.usesTickets ? tickets : [])
    }
  )
}

private func whole(_ walk: PushWalk, _ mode: PushMode) -> ByteBuffer {
  var source = bodies(walk, mode)
  var buffer = ByteBuffer()
  while var piece = source.next() { buffer.writeBuffer(&piece) }
  #expect(buffer.readableBytes == source.byteCount)
  return buffer
}

@Suite struct PushBodiesTests {
  private static let walk = PushWalk(atLeast: 2 * 2_200, channels: 550, members: 2)

  @Test func linesFollowTheWalk() {
    let walk = Self.walk
    let lines = String(buffer: whole(walk, .ndjsonName)).split(separator: "\n")
    #expect(lines.count == walk.count && walk.messages == 2)
    #expect(lines[0] == #"{"cid":"messaging:push-0","message_id":"m1","user_id":"user-0"}"#)
    #expect(lines[551] == #"{"cid":"messaging:push-1","message_id":"m1","user_id":"user-3"}"#)
    // m1, m1 again, m2, m1 again.
    #expect(lines[1_100] == lines[0] && lines[3_300] == lines[0])
    #expect(lines[2_200] == #"{"cid":"messaging:push-0","message_id":"m2","user_id":"user-0"}"#)
    let tickets = String(buffer: whole(walk, .ndjsonTicket)).split(separator: "\n")
    #expect(tickets[2_201] == #"{"ticket":"t2-1"}"#)
  }

  @Test(arguments: [PushMode.framesName, .framesTicket])
  func framesFollowTheWalk(_ mode: PushMode) throws {
    let walk = Self.walk
    var frames: [(UInt32, [String])] = []
    try whole(walk, mode).withUnsafeReadableBytes { bytes in
      let bytes = RawSpan(_unsafeBytes: bytes)
      var offset = 0
      while offset < bytes.byteCount {
        guard case .frame(let header, let count) = try FrameDecoder().next(bytes, at: offset) else { break }
        #expect(header.kind == (mode.usesTickets ? .presentTicket : .acknowledgePush))
        var reader = FieldReader(bytes.extracting(offset + 12..<offset + 12 + count))
        var texts: [String] = []
        if !mode.usesTickets { texts.append(try reader.text()) }
        #expect(try reader.varint() == 1)
        texts.append(try reader.text())
        if !mode.usesTickets { texts.append(try reader.text()) }
        #expect(try reader.varint() == 0)
        #expect(try reader.varint() == 0)
        try reader.end()
        frames.append((header.correlation, texts))
        offset += 12 + count
      }
    }
    #expect(frames.count == walk.count)
    #expect(frames[551].0 == 552 && frames[2_200 + 551].0 == 1_100 + 552)
    #expect(frames[2_200 + 551].1 == (mode.usesTickets ? ["t2-551"] : ["messaging:push-1", "user-3", "m2"]))
  }
}

@Suite struct PushResultsTests {
  private static let walk = PushWalk(atLeast: 12, channels: 3, members: 2)

  private func line(_ number: Int) -> String {
    let walk = Self.walk
    let (block, place) = (number / walk.pairs, number % walk.pairs)
    return #"{"ok":true,"cid":"messaging:push-\#(walk.channel(at: place))","message_id":"m"#
      + #"\#(walk.message(ofBlock: block))","user_id":"user-\#(walk.user(at: place))"}"# + "\n"
  }

  /// Feed bytes in pieces, and return the count of responses and the error.
  private func read(_ answers: some PushResults, _ bytes: [UInt8], pieces: Int) -> (count: Int, error: String) {
    var answers = answers
    do throws(LoadError) {
      for start in stride(from: 0, to: bytes.count, by: pieces) {
        var failure: LoadError?
        bytes[start..<min(start + pieces, bytes.count)].withUnsafeBytes { piece in
          do throws(LoadError) { try answers.read(piece) } catch { failure = error }
        }
        if let failure { throw failure }
      }
      try answers.end()
      return (answers.count, "")
    } catch {
      return (answers.count, error.description)
    }
  }

  @Test(arguments: [1, 2, 7, 100, 10_000])
  func linesAreComparedInPiecesOfAnySize(_ pieces: Int) {
    let lines = (0..<12).map(line)
    #expect(read(PushLines(Self.walk), Array(lines.joined().utf8), pieces: pieces) == (12, ""))
    var swapped = lines
    swapped.swapAt(4, 5)
    let (count, error) = read(PushLines(Self.walk), Array(swapped.joined().utf8), pieces: pieces)
    #expect(count == 4 && error.hasPrefix(#"answer 5 is {"ok":true,"cid":"messaging:push-"#))
  }

  @Test func wrongLineCountIsAnError() {
    let lines = (0..<12).map(line)
    let short = read(PushLines(Self.walk), Array(lines.dropLast().joined().utf8), pieces: 50)
    #expect(short == (11, "11 answers to 12 acknowledgements"))
    let long = read(PushLines(Self.walk), Array((lines + [lines[0]]).joined().utf8), pieces: 50)
    #expect(long.error.hasPrefix("more answers than acknowledgements"))
    let cut = read(PushLines(Self.walk), Array(lines.joined().utf8.dropLast()), pieces: 50)
    #expect(cut.count == 11 && !cut.error.isEmpty)
  }

  @Test func refusedLineIsAnError() {
    let refused = #"{"ok":false,"code":"ticket_expired"}"# + "\n"
    for place in [0, 11] {
      var lines = (0..<12).map(line)
      lines[place] = refused
      let (count, error) = read(PushLines(Self.walk), Array(lines.joined().utf8), pieces: 64)
      #expect(count == place && !error.isEmpty)
    }
  }

  private func reply(
    _ correlation: Int,
    moved: UInt8,
    kind: FrameKind = .acknowledgePush,
    names: String = ""
  ) -> [UInt8] {
    var buffer = ByteBuffer()
    buffer.writeFrame(FrameHeader(replyTo: kind, correlation: UInt32(correlation))) { buffer in
      buffer.writeInteger(moved)
      buffer.writeVarint(1_700_000_000_000 as UInt64)
      buffer.writeVarint(1_700_000_000_300 as UInt64)
      for _ in 0..<3 { buffer.writeField(names) }
    }
    return Array(buffer.readableBytesView)
  }

  @Test(arguments: [1, 3, 11, 64, 10_000])
  func repliesMayComeInAnyOrder(_ pieces: Int) {
    let replies = (1...6).reversed().map { reply($0, moved: 1) } + (1...6).map { reply($0, moved: 0) }
    let read = read(PushReplies(Self.walk, .framesName), replies.flatMap(\.self), pieces: pieces)
    #expect(read == (12, ""))
  }

  @Test func unexpectedRepliesAreErrors() {
    let good = (1...6).map { reply($0, moved: 1) } + (1...6).map { reply($0, moved: 0) }
    func error(_ replies: [[UInt8]]) -> String {
      read(PushReplies(Self.walk, .framesName), replies.flatMap(\.self), pieces: 100).error
    }
    #expect(error(good).isEmpty)
    #expect(error(good + [reply(1, moved: 0)]) == "a reply to 1, which is not expected")
    #expect(error([reply(7, moved: 1)]) == "a reply to 7, which is not expected")
    #expect(error([reply(0, moved: 1)]) == "a reply to 0, which is not expected")
    #expect(error(Array(good.dropLast())) == "11 replies to 12 acknowledgements")
    #expect(error(good.dropLast() + [reply(6, moved: 1)]) == "7 watermarks were moved, expected 6")
    #expect(error([reply(1, moved: 2)]).hasPrefix("a reply is not a delivery"))
    #expect(error([reply(1, moved: 1, names: "x")]).hasPrefix("a reply is not a delivery"))
    #expect(error([reply(1, moved: 1, kind: .presentTicket)]).hasPrefix("an unexpected kind of reply"))
    #expect(error(good.dropLast() + [Array(good[11].dropLast())]) == "the replies end within a frame")
    #expect(error([[0, 0, 0, 1, 0xC0, 0, 0, 0]]).hasPrefix("invalid frames"))
    var refusal = ByteBuffer()
    refusal.writeError(.notAMember, correlation: 3, detail: "gone")
    #expect(error([Array(refusal.readableBytesView)]) == "acknowledgement 3 was refused: notAMember gone")
  }
}

/// Answers every line as it arrives, as the gateway does.
private final class PushServer: HTTP2ServerDelegate {
  enum Fault: Equatable {
    case none
    /// The n-th line is refused.
    case refuses(Int)
    /// The stream is ended with the n-th answer.
    case ends(Int)
    /// The stream is reset with the n-th.
    case resets(Int)
    case problem
  }

  private let fault: Fault
  private(set) var authorization = ""
  private(set) var count = 0
  private var isOver = false
  private var hasEnded = false
  /// Answers without room in the window. The rest of the body waits for them.
  private var held = ByteBuffer()

  init(_ fault: Fault) { self.fault = fault }

  func http2RequestReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<PushServer>) {
    connection.withRequest(stream) { request in
      authorization = request.authorization.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    }
    if fault == .problem {
      isOver = true
      connection.respond(stream, status: 503) { $0.writeString("no store") }
      return
    }
    connection.startStreaming(stream, status: 200, contentType: .ndjson)
  }

  func http2RequestBodyReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<PushServer>) {
    guard !isOver, held.readableBytes == 0 else { return }
    connection.readBody(stream) { bytes, end in
      hasEnded = end
      return bytes.withUnsafeBytes { bytes in
        guard let last = bytes.lastIndex(of: UInt8(ascii: "\n")) else { return end ? bytes.count : 0 }
        for line in String(decoding: bytes[...last], as: UTF8.self).split(separator: "\n") {
          count += 1
          if fault == .ends(count) || fault == .resets(count) { isOver = true }
          let refused = fault == .refuses(count)
          if !isOver {
            held.writeString(
              refused ? #"{"ok":false,"code":"busy"}"# + "\n" : #"{"ok":true,"# + line.dropFirst() + "\n"
            )
          }
        }
        return end ? bytes.count : last + 1
      }
    }
    answer(stream, connection)
  }

  func http2StreamDrained(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<PushServer>) {
    answer(stream, connection)
    if !hasEnded { http2RequestBodyReceived(stream, on: connection) }
  }

  private func answer(_ stream: HTTP2StreamHandle, _ connection: HTTP2ServerConnection<PushServer>) {
    if case .resets = fault, isOver { return connection.reset(stream, .internalError) }
    if held.readableBytes > 0 {
      guard connection.write(stream, held) != .full else { return }
      held = ByteBuffer()
    }
    if hasEnded || isOver { connection.finish(stream) }
  }
}

@Suite struct PushStreamTests {
  /// Some 3.6 MB: more than all windows.
  private static let walk = PushWalk(atLeast: 50_000, channels: 500, members: 5)

  /// Run the whole walk against the server, and return the error.
  private func run(_ fault: PushServer.Fault) async throws -> (error: String, count: Int) {
    try await withServer({ PushServer(fault) }, streamedContentTypes: [.ndjson]) { endpoint, server in
      let meter = ServiceCPUMeter(ServiceProcesses(gateway: getpid(), store: getpid()))
      let stream = PushStream(endpoint: endpoint, token: "t", mode: .ndjsonName, meter: meter)
      var text = ""
      do {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let outcome = try await stream.run(bodies(Self.walk, .ndjsonName), on: loop)
        #expect(outcome.seconds > 0 && outcome.cpu.client > 0)
      } catch let error as LoadError {
        text = error.description
      }
      let (count, authorization) = try await server.eventLoop.submit {
        (server.value.count, server.value.authorization)
      }.get()
      #expect(authorization == "Bearer t")
      return (text, count)
    }
  }

  @Test func bodyLargerThanAllWindowsIsAnsweredWhileSent() async throws {
    let (error, count) = try await run(.none)
    #expect(error.isEmpty && count == Self.walk.count)
  }

  @Test(arguments: [
    (PushServer.Fault.refuses(30_000), #"answer 30000 is {"ok":false,"code":"busy"}"#),
    (.ends(20_001), "20000 answers to 50000 acknowledgements"),
    (.problem, "POST /v1/push/acks was answered 503: no store"),
  ]) private func faultIsReported(_ fault: PushServer.Fault, _ says: String) async throws {
    let error = try await run(fault).error
    #expect(error == says)
  }

  @Test func streamResetIsReported() async throws {
    #expect(try await run(.resets(10)).error.hasSuffix("the stream was reset with HTTP/2 error 2"))
  }
}

@Suite struct PushReportTests {
  @Test func tableHasMedianOfRounds() {
    let walk = PushWalk(atLeast: 1_000_000, channels: 1_000, members: 10)
    var report = PushReport(rounds: 3, walk)
    for scale in [1.0, 3, 2] {
      report.runs.append(
        PushReport.Run(
          way: .framesName,
          acknowledgements: walk.count,
          seconds: 1 / scale,
          perSecond: 100_000 * scale,
          clientMicroseconds: 0.5 * scale,
          gatewayMicroseconds: 1 * scale,
          storeMicroseconds: 2 * scale,
          clientMemory: PushReport.Memory(before: 1 << 20, most: 3 << 20),
          gatewayMemory: PushReport.Memory(before: 10 << 20, most: (10 + Int(scale)) << 20),
          storeMemory: PushReport.Memory(before: 1 << 20, most: 1 << 20),
          bytesEach: 61.4,
          rowsChecked: 1_000
        )
      )
    }
    let lines = report.markdown.split(separator: "\n")
    #expect(
      lines[0].hasPrefix(
        "1,000,000 acknowledgements a run, all through one stream: 500,000 move a watermark (50 messages,"
      )
    )
    #expect(lines[0].hasSuffix("Medians of 3 rounds; every answer compared, 1,000 rows read back after each run."))
    #expect(lines.count == 4)
    let cells = lines[3].split(separator: "|").map { $0.split(separator: " ").joined(separator: " ") }
    #expect(
      cells == [
        "POST /v1/frames, names", "61", "200,000", "1.00 µs", "2.00 µs", "4.00 µs", "2.0 of 3.0 MiB",
        "2.0 of 12.0 MiB", "0.0 of 1.0 MiB",
      ]
    )
  }
}
