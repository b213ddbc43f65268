import Foundation
import LocalStack
import Operations
import Synchronization
import TestPrograms

/// Marks through HAProxy without a pause, from h2load, over connections that are made anew for every few hundred of
/// them: what is not answered 2xx is found, and so is a connection that is refused.
final class BalancedLoad: Sendable {
  struct Result: Sendable {
    var answered = 0
    /// h2load's words where one request had no answer, or another than 2xx.
    var faults: [String] = []
  }

  /// Requests of one run of h2load.
  private static let requestsPerRun = 600

  private struct State {
    var result = Result()
    var isEnding = false
  }

  private let state = Mutex(State())
  private let task: Mutex<Task<Void, any Error>?> = Mutex(nil)

  /// - Parameter body: the file with the body of a read mark in `path`.
  init(_ balanced: Balanced, path: String, body: String) {
    let arguments = [
      "-n", "\(Self.requestsPerRun)", "-c", "4", "-m", "8", "-N", "30", "-d", body, "-H",
      "authorization: Bearer \(balanced.serverToken)", "-H", "content-type: application/json",
      balanced.url + path,
    ]
    let running = Task { try await self.run(arguments) }
    task.withLock { $0 = running }
  }

  private func run(_ arguments: [String]) async throws {
    let expected = [
      "\(Self.requestsPerRun) succeeded, 0 failed, 0 errored, 0 timeout",
      "status codes: \(Self.requestsPerRun) 2xx",
    ]
    while !state.withLock({ $0.isEnding }) {
      let output = try await Command.run("h2load", arguments)
      state.withLock { state in
        if expected.allSatisfy(output.out.contains) {
          state.result.answered += Self.requestsPerRun
        } else {
          let lines = output.out.split(separator: "\n").filter {
            $0.hasPrefix("requests:") || $0.hasPrefix("status codes:")
          }
          state.result.faults.append(lines.joined(separator: "; ") + output.error)
        }
      }
    }
  }

  /// So far.
  var result: Result { state.withLock { $0.result } }

  /// Waits for the last run of h2load, and says what came of all.
  @discardableResult
  func end() async throws -> Result {
    state.withLock { $0.isEnding = true }
    let running = task.withLock { $0 }
    try await running?.value
    return result
  }
}
