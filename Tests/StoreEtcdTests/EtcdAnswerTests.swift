import NIOCore
import StoreEngine
import StoreTestSupport
import TestSupport
import Testing

@testable import StoreEtcd

/// Answers that are no success, or not etcd's: each call fails with a name, and nothing is guessed.
@Suite struct EtcdAnswerTests {
  typealias Frame = ScriptedServer.Frame

  /// What a server answers every call with, and what the client reports.
  struct Case: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let answer: ScriptedServer.Answer
    let failure: EtcdFailure

    init(_ description: String, _ failure: EtcdFailure, _ frames: [Frame]) {
      testDescription = description
      answer = .frames(frames)
      self.failure = failure
    }

    init(_ description: String, _ failure: EtcdFailure, raw: String) {
      testDescription = description
      answer = .raw(raw)
      self.failure = failure
    }
  }

  private static let begin = Frame.headers([(":status", "200"), ("content-type", "application/grpc")])
  private static let end = Frame.headers([("grpc-status", "0")], isLast: true)

  private static func message(_ bytes: [UInt8]) -> [UInt8] {
    Array(GRPCMessage.framed { $0.writeBytes(bytes) }.readableBytesView)
  }

  /// The response to a transaction that reads the end of an empty log, without a configuration.
  private static let emptyEnd: [UInt8] = {
    let message = GRPCMessage.framed { buffer in
      buffer.writeProtobuf(1) { $0.writeProtobuf(3, 5) }
      buffer.writeProtobuf(2, true)
      for _ in 0..<5 { buffer.writeProtobuf(3) { $0.writeProtobuf(1) { _ in } } }
    }
    return Array(message.readableBytesView)
  }()

  private static func status(_ code: UInt32, _ message: String) -> EtcdFailure {
    .status(GRPCStatus(code: code, message: message))
  }

  static let cases = [
    Case(
      "error in trailers",
      status(14, "etcdserver: leader changed"),
      [
        begin,
        .headers([("grpc-status", "14"), ("grpc-message", "etcdserver: leader changed")], isLast: true),
      ]
    ),
    Case(
      "error in headers",
      status(8, "etcdserver: too many requests"),
      [
        .headers(
          [(":status", "200"), ("grpc-status", "8"), ("grpc-message", "etcdserver: too many requests")],
          isLast: true
        )
      ]
    ),
    Case(
      "error with a message",
      status(14, "etcdserver: request timed out"),
      [
        begin, .data(emptyEnd),
        .headers([("grpc-status", "14"), ("grpc-message", "etcdserver: request timed out")], isLast: true),
      ]
    ),
    Case("no gRPC", .httpStatus(503), [.headers([(":status", "503")], isLast: true)]),
    Case("no status", .malformed(.noStatus), [begin, .data(emptyEnd), .headers([("a", "b")], isLast: true)]),
    Case("no message", .malformed(.notOneMessage), [begin, end]),
    Case("two messages", .malformed(.notOneMessage), [begin, .data(emptyEnd), .data(emptyEnd), end]),
    Case("half a message", .malformed(.notOneMessage), [begin, .data(emptyEnd.dropLast()), end]),
    Case("compressed", .malformed(.compressed), [begin, .data([1] + emptyEnd.dropFirst()), end]),
    Case("truncated fields", .malformed(.truncated), [begin, .data(message([0x0A, 0x05])), end]),
    Case("garbage", .malformed(.badWireType(7)), [begin, .data(message([0xFF, 0x01])), end]),
    Case("another response", .malformed(.unexpectedResponse), [begin, .data(message([0x10, 0x01])), end]),
    Case("too large", .reset(8), [begin, .data(Array(repeating: 0, count: 2_000)), end]),
    Case("reset", .reset(7), [.reset(7)]),
    Case("no trailers", .malformed(.noStatus), [begin, Frame(type: 0, flags: 1, payload: emptyEnd)]),
    Case("shutting down", .connectionLost, [.goAway]),
    Case("HTTP/1", .unreachable(""), raw: "HTTP/1.1 400 Bad Request\r\n\r\n"),
  ]

  @Test(arguments: cases)
  func badAnswersFailTheirCalls(_ example: Case) async throws {
    try await ScriptedServer.with(example.answer) { endpoint in
      var configuration = try EtcdConfiguration(cluster: "test", endpoints: [endpoint])
      configuration.callTimeout = .seconds(20)
      configuration.connectTimeout = .seconds(20)
      configuration.responseBytesMax = 1_000
      let failures = FailureList()
      try await AsyncGroupLog.with(configuration, failures: failures) { log in
        let group = GroupID(0)
        let ends = try await log.ends(of: [group])
        #expect(ends == nil)
        let claim = LogCursor.start.record(.claim(by: NodeID(1)), epoch: OwnerEpoch(1))
        #expect(try await log.claim(GroupClaim(group: group, record: claim, seen: .none)) == .unclear)
        let record = LogCursor(after: claim).record(.alive, epoch: OwnerEpoch(1))
        let append = GroupAppend(group: group, record: record, fence: OwnerFence(1))
        #expect(try await log.append([append]) == [.unclear])
        #expect(try await log.read(group, from: 1) == .failed)
        let followed = log.follow(group, from: 1)
        try await followed.waitForEnd()
        #expect(followed.records.isEmpty)
      }
      let reported = failures.failures.map { failure in
        // The system's words for a closed connection vary.
        if case .unreachable = failure { EtcdFailure.unreachable("") } else { failure }
      }
      #expect(reported.contains(example.failure), "\(failures.failures)")
    }
  }

  @Test(arguments: [false, true])
  func answersInPiecesAreRead(bytewise: Bool) async throws {
    let frames = [Self.begin, .data(Self.emptyEnd), Self.end]
    try await ScriptedServer.with(bytewise ? .bytewise(frames) : .frames(frames)) { endpoint in
      var configuration = try EtcdConfiguration(cluster: "test", endpoints: [endpoint])
      configuration.callTimeout = .seconds(20)
      configuration.connectTimeout = .seconds(20)
      try await AsyncGroupLog.with(configuration) { log in
        let end = GroupEnd(owner: .none, first: RecordPosition(1), last: .zero)
        for _ in 0..<3 {
          let ends = try await log.ends(of: [GroupID(0)])
          #expect(ends == [end])
        }
      }
    }
  }
}
