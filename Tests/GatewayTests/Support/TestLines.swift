import Foundation
import HTTP2Session
import StoreTestSupport
import Synchronization
import TestSupport
import Testing

@testable import Gateway

extension TestClient {
  /// Begin a request whose response is read line by line.
  func lines(_ path: String, token: String? = TestTokens.server) async throws -> TestRequestStream {
    let stream = TestRequestStream()
    try await open(.get, path, contentType: "", token: token, stream)
    try await finish(stream)
    return stream
  }
}

extension TestRequestStream {
  /// Return the next line, which has to be an object.
  func object() async throws -> NSDictionary {
    guard let text = await self.line() else { throw Unexpected("the response has no further line") }
    let parsed = try JSONSerialization.jsonObject(with: Data(text.utf8))
    guard let object = parsed as? NSDictionary else { throw Unexpected("a line is no object: \(text)") }
    return object
  }
}

extension TestResponse {
  /// The lines of the body, each of which has to be an object.
  var lines: [NSDictionary] {
    get throws {
      var lines: [NSDictionary] = []
      for text in body.split(separator: "\n") {
        let parsed = try JSONSerialization.jsonObject(with: Data(text.utf8))
        guard let object = parsed as? NSDictionary else { throw Unexpected("a line is no object: \(text)") }
        lines.append(object)
      }
      return lines
    }
  }
}

extension TestGateway {
  /// Return the value of one of the loop's metrics, named without `tidemark_gateway_`.
  func metric(_ name: String) async throws -> Int {
    let prefix = "tidemark_gateway_\(name) "
    let text = try await metrics()
    for line in text.split(separator: "\n") where line.hasPrefix(prefix) {
      if let value = Int(line.dropFirst(prefix.count)) { return value }
    }
    throw Unexpected("no metric \(name)")
  }
}

/// Answers to the next requests; those after them are answered by the engine.
final class NextAnswers: Sendable {
  private let left: Mutex<[StoreInMemory.Answer]>

  init(_ answers: [StoreInMemory.Answer]) { left = Mutex(answers) }

  /// Take the answer to a request.
  func take() -> StoreInMemory.Answer {
    left.withLock { answers -> StoreInMemory.Answer in
      if answers.isEmpty { return .engine }
      return answers.removeFirst()
    }
  }

  /// Whether all were given.
  var isEmpty: Bool { left.withLock { $0.isEmpty } }
}
