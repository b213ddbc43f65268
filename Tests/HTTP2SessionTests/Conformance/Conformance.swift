import HTTP2Session
import Testing

/// The behaviour that the RFC requires of a server after certain frames.
enum Expected: Sendable {
  /// A complete response with that status on that stream; the connection stays open.
  case answer(Int, stream: Int32 = 1)
  /// No response; the connection stays open, as a PING shows.
  case alive
  /// RST_STREAM with one of the codes; the connection stays open.
  case streamError(HTTP2ErrorCode, stream: Int32 = 1)
  /// GOAWAY with one of the codes, then the connection is closed.
  case connectionError([HTTP2ErrorCode])
  /// Either of the two above, where the RFC leaves the choice or lets a stream error be treated as a connection error
  /// (section 5.4.2).
  case anyError([HTTP2ErrorCode], stream: Int32 = 1)
  /// These frames are among those sent; the connection stays open.
  case sent([Frame])
}

/// One case of the suite. Each step is sent after the response to the step before.
struct Conformance: CustomTestStringConvertible, Sendable {
  let name: String
  let steps: [[UInt8]]
  let expected: Expected
  var limits = HTTP2Limits()
  var preface = true

  init(_ name: String, _ steps: [Frame]..., expect: Expected) {
    self.name = name
    self.steps = steps.map { $0.flatMap(\.bytes) }
    self.expected = expect
  }

  init(_ name: String, raw: [UInt8], expect: Expected) {
    self.name = name
    self.steps = [raw]
    self.expected = expect
    self.preface = false
  }

  init(_ name: String, limits: HTTP2Limits, _ steps: [Frame]..., expect: Expected) {
    self.name = name
    self.steps = steps.map { $0.flatMap(\.bytes) }
    self.expected = expect
    self.limits = limits
  }

  var testDescription: String { name }

  static let all = genericCases + connectionCases + streamCases + frameCases + messageCases + hpackCases
}

/// How a step's bytes are split into reads.
enum Delivery: String, CaseIterable, Sendable {
  case whole, dripped, inThrees
}

@Suite("RFC 9113 and RFC 7541")
struct ConformanceTests {
  @Test("case names are unique, and at least as many as in the public suite")
  func caseNamesAreUnique() {
    #expect(Set(Conformance.all.map(\.name)).count == Conformance.all.count)
    #expect(Conformance.all.count >= 146)
  }

  @Test("the server conforms", arguments: Conformance.all, Delivery.allCases)
  func serverConforms(_ test: Conformance, _ delivery: Delivery) throws {
    let server = try TestServer(limits: test.limits, preface: test.preface)
    for step in test.steps {
      switch delivery {
      case .whole: server.send(step)
      case .dripped: for byte in step { server.send([byte]) }
      case .inThrees:
        for start in stride(from: 0, to: step.count, by: 3) {
          server.send(Array(step[start..<min(start + 3, step.count)]))
        }
      }
    }
    check(server, test.expected)
  }

  private func check(_ server: TestServer, _ expected: Expected) {
    switch expected {
    case .answer(let status, let stream):
      #expect(server.status(stream) == status)
      #expect(server.isEnded(stream))
      checkAlive(server)
    case .alive: checkAlive(server)
    case .streamError(let code, let stream):
      #expect(server.frames(.rstStream, stream: stream).first?.errorCode == code.rawValue, "\(server.frames)")
      checkAlive(server)
    case .connectionError(let codes):
      #expect(codes.map(\.rawValue).contains(server.frames(.goAway).last?.errorCode), "\(server.frames)")
      #expect(server.isClosed)
    case .anyError(let codes, let stream):
      let reset = server.frames(.rstStream, stream: stream).first?.errorCode
      let goAway = server.frames(.goAway).last?.errorCode
      #expect(codes.map(\.rawValue).contains(reset ?? goAway), "\(server.frames)")
      if reset == nil { #expect(server.isClosed) } else { checkAlive(server) }
    case .sent(let frames):
      for frame in frames { #expect(server.frames.contains(frame), "\(server.frames)") }
      checkAlive(server)
    }
  }

  private func checkAlive(_ server: TestServer) {
    #expect(server.frames(.goAway).isEmpty, "\(server.frames)")
    server.send(ping("alive???"))
    #expect(server.frames.contains(ping("alive???", ack: true)), "\(server.frames)")
    #expect(!server.isClosed)
  }
}
