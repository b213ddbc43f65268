internal import Foundation
internal import Glibc
internal import LocalStack

extension ChildProcess {
  /// Run a program to its end and return its output, which stays in `directory`.
  ///
  /// - Parameters:
  ///   - directory: the program's working directory.
  ///   - limit: time after which the program and its children are killed; nil: none.
  /// - Throws: ``LoadError`` if the program fails or does not end in time. A cancelled task ends the program.
  static func output(
    name: String,
    executable: String,
    arguments: [String],
    directory: String,
    limit: Duration? = nil
  ) async throws -> String {
    let log = "\(directory)/\(name)-\(UInt32.random(in: 0...UInt32.max)).log"
    let child = try ChildProcess(
      name: name,
      executable: executable,
      arguments: arguments,
      logFile: log,
      directory: directory
    )
    let start = ContinuousClock.now
    let killer = limit.map { limit in
      Task {
        try await Task.sleep(for: limit)
        child.kill()
      }
    }
    defer { killer?.cancel() }
    let status = await withTaskCancellationHandler {
      await child.waitForExit()
    } onCancel: {
      child.signal(SIGTERM)
    }
    try Task.checkCancellation()
    let text = String(decoding: FileManager.default.contents(atPath: log) ?? Data(), as: UTF8.self)
    guard status != .exited(code: 0) else { return text }
    if let limit, ContinuousClock.now - start >= limit {
      throw LoadError("timed out after \(limit.components.seconds) s waiting for \(name) to end: \(text.suffix(300))")
    }
    throw LoadError("\(name) \(status): \(text.suffix(300))")
  }
}
