import HTTP2Session
import NIOCore
import NIOEmbedded
import NIOPosix
import Operations
import TestPrograms
import Testing

@testable import LoadGenerator

@Suite struct EventBlocksTests {
  private struct Seen: Equatable {
    var type: String
    var data: String
    var id: String

    init(_ type: String, _ data: String, _ id: String) {
      self.type = type
      self.data = data
      self.id = id
    }
  }

  private static let text = """
    :
    id: 0a-1

    event: message.read
    data: {"type":"message.read","cid":"messaging:b1-0007","user":{"id":"b1-user-3"},"last_read_seq":42}
    id: 0a-2

    event: message.status
    data: {"to_seq":42,"status":"read"}


    """

  private func read(_ text: String, pieces: Int) throws -> [Seen] {
    var blocks = EventBlocks()
    var seen: [Seen] = []
    let bytes = Array(text.utf8)
    for start in stride(from: 0, to: bytes.count, by: pieces) {
      try bytes[start..<min(start + pieces, bytes.count)].withUnsafeBytes { piece in
        try blocks.read(piece) { block throws(LoadError) in
          func string(_ bytes: UnsafeRawBufferPointer) -> String { String(decoding: bytes, as: UTF8.self) }
          seen.append(Seen(string(block.type), string(block.data), string(block.id)))
        }
      }
    }
    return seen
  }

  @Test(arguments: [1, 2, 7, 50, 1_000])
  func blocksDoNotDependOnPieceSize(pieces: Int) throws {
    let read = #"{"type":"message.read","cid":"messaging:b1-0007","user":{"id":"b1-user-3"},"last_read_seq":42}"#
    #expect(
      try self.read(Self.text, pieces: pieces) == [
        Seen("", "", "0a-1"), Seen("message.read", read, "0a-2"),
        Seen("message.status", #"{"to_seq":42,"status":"read"}"#, ""),
      ]
    )
  }

  @Test func unfinishedBlockIsIgnored() throws {
    #expect(try read("event: a\ndata: {}\n", pieces: 100).isEmpty)
  }

  @Test func oversizeBlockIsAnError() throws {
    var blocks = EventBlocks()
    let piece = [UInt8](repeating: UInt8(ascii: "x"), count: EventBlocks.byteCountMax / 2 + 1)
    try piece.withUnsafeBytes { try blocks.read($0) { _ in } }
    #expect(throws: LoadError.self) { try piece.withUnsafeBytes { try blocks.read($0) { _ in } } }
  }

  @Test func fieldsAreFoundByKey() throws {
    var blocks = EventBlocks()
    try Array(Self.text.utf8).withUnsafeBytes { bytes in
      try blocks.read(bytes) { block throws(LoadError) in
        guard block.isType("message.read") else { return }
        #expect(!block.isType("message"))
        #expect(block.text(after: #""cid":""#)?.trailingNumber == 7)
        #expect(block.text(after: #""user":{"id":""#)?.equals("b1-user-3") == true)
        #expect(block.number(after: #""last_read_seq":"#) == 42)
        #expect(block.number(after: #""cid":"#) == nil)
        #expect(block.text(after: #""thread_id":""#) == nil)
      }
    }
  }
}

@Suite struct LoadPaceTests {
  @Test func requestsAreDueEvenlyFromStart() {
    var pace = LoadPace(rate: 1_000, start: 5_000_000)
    #expect(pace.next(at: 4_999_999) == nil)
    var due: [UInt64] = []
    while let next = pace.next(at: 8_000_000) {
      due.append(next)
      pace.madeOne()
    }
    #expect(due == [5_000_000, 6_000_000, 7_000_000, 8_000_000])
  }

  @Test func overdueRequestsStayDue() {
    var pace = LoadPace(rate: 10, start: 0)
    #expect(pace.next(at: 1_000_000_000) == 0)
    pace.madeOne()
    #expect(pace.next(at: 1_000_000_000) == 100_000_000)
  }
}

@Suite struct EventPositionsTests {
  private let names = BenchNames(prefix: "b1")

  /// Feed events as a stream would, then the acknowledged positions, and return the outcome.
  private func outcome(_ events: [String], expecting acknowledged: [[Int]]) -> Result<
    EventPositions.Outcome, any Error
  > {
    let loop = EmbeddedEventLoop()
    let promise = loop.makePromise(of: EventPositions.Outcome.self)
    let sink = EventPositions(names, members: 2, channels: 2, promise, eventLoop: loop)
    var blocks = EventBlocks()
    do throws(LoadError) {
      for (index, event) in events.enumerated() {
        // The acknowledged positions are known before the last event arrives.
        if index == events.count - 1 { sink.expect(acknowledged, within: .seconds(1)) }
        let text = "event: \(event.hasPrefix("own") ? "notification.mark_read" : "message.read")\ndata: {\(event)}\n\n"
        var failure: LoadError?
        Array(text.utf8).withUnsafeBytes { bytes in
          do throws(LoadError) {
            try blocks.read(bytes) { block throws(LoadError) in try sink.received(block, stream: 0, now: 0) }
          } catch {
            failure = error
          }
        }
        if let failure { throw failure }
      }
    } catch {
      sink.failed(error)
    }
    loop.advanceTime(by: .seconds(2))
    return Result { try promise.futureResult.wait() }
  }

  private func positionEvent(_ member: Int, _ channel: Int, to position: Int) -> String {
    #""cid":"\#(names.channel(channel))","user":{"id":"\#(names.user(member))"},"last_read_seq":\#(position)"#
  }

  @Test func countEndsWithLastAcknowledgedPosition() throws {
    let events = [
      positionEvent(0, 1, to: 1), positionEvent(0, 1, to: 3), #"own":1,"user":{"id":"b1-user-0"}"#,
      positionEvent(1, 0, to: 2),
    ]
    #expect(try outcome(events, expecting: [[0, 3], [2, 0]]).get() == EventPositions.Outcome(count: 4))
  }

  @Test func missingEventIsAnError() {
    let result = outcome([positionEvent(0, 1, to: 1)], expecting: [[0, 2], [0, 0]])
    #expect(throws: LoadError("messaging:b1-0001: the last event for b1-user-0 has position 1, acknowledged was 2")) {
      try result.get()
    }
  }

  @Test(arguments: [
    #""cid":"messaging:b1-0001","user":{"id":"b1-user-7"},"last_read_seq":1"#,
    #""cid":"messaging:other-0001","user":{"id":"b1-user-0"},"last_read_seq":1"#,
    #""cid":"messaging:b1-0001","user":{"id":"b1-user-0"}"#, #"own":1,"user":{"id":"b1-user-1"}"#,
  ]) func unexpectedEventIsAnError(event: String) {
    let result = outcome([event, event], expecting: [[0, 1], [0, 0]])
    #expect { try result.get() } throws: { "\($0)".hasPrefix("an unexpected event") }
  }

  @Test func fallingPositionIsAnError() {
    let result = outcome([positionEvent(0, 1, to: 2), positionEvent(0, 1, to: 1)], expecting: [[0, 3], [0, 0]])
    #expect { try result.get() } throws: { "\($0)".hasPrefix("a position has fallen from 2") }
  }
}

@Suite struct EventReportTests {
  private func report() -> EventReport {
    var report = EventReport(rounds: 2, rate: 1_000)
    for round in 0..<2 {
      let scale = Double(1 + round)
      for load in [EventReport.Load.none, .unwatched] {
        report.latencies.append(
          EventReport.Latency(
            load: load,
            marks: 10,
            answerP50: 100 * scale,
            answerP99: 1_000 * scale,
            eventP50: 200 * scale,
            eventP99: 2_000 * scale,
            eventMax: 4_000 * scale,
            loadRate: load == .none ? nil : 900 * scale
          )
        )
      }
    }
    report.idle.append(
      EventReport.Idle(
        streams: 100,
        connections: 2,
        openSeconds: 0.5,
        bytesBefore: 1 << 20,
        bytesOpen: 1 << 20 + 204_800,
        bytesAfterHeartbeat: 1 << 20 + 409_600
      )
    )
    return report
  }

  @Test func tablesHaveMediansOverRounds() {
    let lines = report().markdown.split(separator: "\n").map {
      $0.split(separator: "|").map { $0.trimmingSpaces }
    }
    #expect(lines[2] == ["nothing else", "20", "150 µs", "1.50 ms", "300 µs", "3.00 ms", "6.00 ms"])
    #expect(lines[3].first == "marks that nobody watches, 1,350 a second")
    #expect(lines[6] == ["100", "2", "500.00 ms", "2.00 KiB", "4.00 KiB", "1024.00 KiB"])
    #expect(lines.count == 7)
  }

  @Test func unreachedRateIsReported() {
    var report = report()
    report.rate = 2_000
    #expect(report.markdown.contains("1,350 a second (of 2,000: not reached)"))
  }
}

extension Substring {
  fileprivate var trimmingSpaces: String {
    String(drop { $0 == " " }.reversed().drop { $0 == " " }.reversed())
  }
}

/// Answers every request with an event stream's first block, then behaves as configured.
private final class EventServer: HTTP2ServerDelegate {
  enum Behaviour { case sends(String), ends, refuses }

  private let behaviour: Behaviour

  init(_ behaviour: Behaviour) { self.behaviour = behaviour }

  func http2RequestReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<EventServer>) {
    if case .refuses = behaviour {
      connection.respond(stream, status: 503) { $0.writeString("no") }
      return
    }
    connection.startStreaming(stream, status: 200, contentType: .eventStream)
    connection.write(stream, ByteBuffer(string: ":\nid: 1\n\n"))
    switch behaviour {
    case .sends(let text): connection.write(stream, ByteBuffer(string: text))
    case .ends: connection.finish(stream)
    case .refuses: break
    }
  }
}

@Suite struct EventStreamsTests {
  /// Open five streams over two connections, and return the number of heartbeats.
  private func heartbeats(_ behaviour: EventServer.Behaviour) async throws -> Int {
    try await withServer({ EventServer(behaviour) }) { endpoint, _ in
      let requests = (0..<5).map { EventStreamRequest(token: "t\($0)") }
      let loop = MultiThreadedEventLoopGroup.singleton.next()
      let streams = try await EventLoadStreams.open(requests, at: endpoint, connections: 2, on: loop)
      let heartbeats = try await streams.heartbeats
      await streams.close()
      return heartbeats
    }
  }

  @Test func heartbeatsAfterFirstBlockAreCounted() async throws {
    #expect(try await heartbeats(.sends("")) == 0)
    #expect(try await heartbeats(.sends(":\nid: 2\n\n:\nid: 3\n\n")) == 2)
  }

  @Test func unexpectedEventOnStreamIsAnError() async throws {
    await #expect(throws: LoadError("an unexpected event: message.new {}")) {
      _ = try await heartbeats(.sends("event: message.new\ndata: {}\n\n"))
    }
  }

  @Test func endedStreamIsAnError() async throws {
    await #expect { _ = try await heartbeats(.ends) } throws: {
      "\($0)".contains("was ended with status 200")
    }
    await #expect { _ = try await heartbeats(.refuses) } throws: {
      "\($0)".contains("was ended with status 503: no")
    }
  }
}
