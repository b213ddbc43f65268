import Foundation
import LocalStack
import Operations
import Synchronization
import TestPrograms

/// Requests through HAProxy without a pause. It records every response other than 2xx, and every refused connection.
final class BalancedLoad: Sendable {
  struct Result: Sendable {
    var answered = 0
    /// The failed requests: another status, or no response.
    var faults: [String] = []
  }

  private struct State {
    var result = Result()
    var isEnding = false
  }

  private let state = Mutex(State())
  private let task: Mutex<Task<Void, any Error>?> = Mutex(nil)

  /// - Parameter round: sends some requests, and is run again and again. Returns the number of responses and the
  ///   failures.
  private init(_ round: @escaping @Sendable () async throws -> Result) {
    let running = Task {
      while !self.state.withLock({ $0.isEnding }) {
        let result = try await round()
        self.state.withLock { state in
          state.result.answered += result.answered
          state.result.faults += result.faults
        }
      }
    }
    task.withLock { $0 = running }
  }

  /// Read marks from h2load, which opens new connections for every few hundred marks.
  ///
  /// h2load does not reconnect after a GOAWAY, so it cannot test a drain of HAProxy itself.
  ///
  /// - Parameter body: the file with the body of a read mark in `path`.
  static func streams(_ services: LoadBalancedServices, path: String, body: String) -> BalancedLoad {
    let count = 600
    let arguments = [
      "-n", "\(count)", "-c", "4", "-m", "8", "-N", "30", "-d", body, "-H",
      "authorization: Bearer \(services.serverToken)", "-H", "content-type: application/json",
      services.url + path,
    ]
    let expected = [
      "\(count) succeeded, 0 failed, 0 errored, 0 timeout", "status codes: \(count) 2xx",
    ]
    return BalancedLoad {
      let output = try await Command.run("h2load", arguments)
      if expected.allSatisfy(output.out.contains) { return Result(answered: count) }
      let lines = output.out.split(separator: "\n").filter {
        $0.hasPrefix("requests:") || $0.hasPrefix("status codes:")
      }
      return Result(faults: [lines.joined(separator: "; ") + output.error])
    }
  }

  /// Read marks from curl, each over a connection of its own, four at a time. curl accepts any certificate.
  static func connections(_ services: LoadBalancedServices, path: String, body: String) -> BalancedLoad {
    let arguments = [
      "-sS", "--insecure", "--http2", "--max-time", "30", "-o", "/dev/null", "-w", "%{http_code}", "-H",
      "authorization: Bearer \(services.serverToken)", "-H", "content-type: application/json",
      "--data-binary", "@" + body, services.url + path,
    ]
    return BalancedLoad {
      try await withThrowingTaskGroup(of: Result.self) { group in
        for _ in 0..<4 {
          group.addTask {
            let output = try await Command.run("curl", arguments)
            if output.status == 0 && output.out == "200" { return Result(answered: 1) }
            return Result(faults: [output.out + " " + output.error])
          }
        }
        return try await group.reduce(into: Result()) { sum, one in
          sum.answered += one.answered
          sum.faults += one.faults
        }
      }
    }
  }

  /// The result so far.
  var result: Result { state.withLock { $0.result } }

  /// Wait for the last requests, and return the result of all.
  @discardableResult
  func end() async throws -> Result {
    state.withLock { $0.isEnding = true }
    let running = task.withLock { $0 }
    try await running?.value
    return result
  }
}
