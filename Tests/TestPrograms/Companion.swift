import Foundation
import Glibc
package import LocalStack

/// A foreign program that runs beside the test and exchanges lines with it. Only one task at a time may use it.
package final class Companion: Sendable {
  /// The lines of its standard output.
  package let lines: AsyncStream<String>
  private let process: ChildProcess
  /// Writes to its standard input.
  private let input: FileHandle
  private let log = NSTemporaryDirectory() + "tidemark-companion-\(UUID().uuidString).log"
  private let limiter: Task<Void, any Error>

  /// Start the program.
  ///
  /// - Parameters:
  ///   - program: a path, or a name to look up on the PATH.
  ///   - limit: the program is ended after this time, so that a test cannot wait for its output for ever.
  package init(_ program: String, _ arguments: [String], limit: Duration = .seconds(900)) throws {
    // A write to a program that has ended fails, instead of ending this process.
    signal(SIGPIPE, SIG_IGN)
    let (input, output) = (Pipe(), Pipe())
    let process = try ChildProcess(
      name: program,
      executable: try Command.path(of: program),
      arguments: arguments,
      logFile: log,
      input: input.fileHandleForReading.fileDescriptor,
      output: output.fileHandleForWriting.fileDescriptor
    )
    try input.fileHandleForReading.close()
    try output.fileHandleForWriting.close()
    self.process = process
    self.input = input.fileHandleForWriting
    let (lines, continuation) = AsyncStream.makeStream(of: String.self)
    self.lines = lines
    let reading = output.fileHandleForReading
    // Reading blocks, so it has a thread of its own, as waiting for a child has.
    Thread.detachNewThread {
      var pending = Data()
      while case let more = reading.availableData, !more.isEmpty {
        pending.append(more)
        while let end = pending.firstIndex(of: UInt8(ascii: "\n")) {
          continuation.yield(String(decoding: pending[..<end], as: UTF8.self))
          pending = Data(pending[pending.index(after: end)...])
        }
      }
      if !pending.isEmpty { continuation.yield(String(decoding: pending, as: UTF8.self)) }
      continuation.finish()
    }
    limiter = Task {
      try await Task.sleep(for: limit)
      process.kill()
    }
  }

  /// Write a line to the program; do nothing if it has ended.
  package func send(_ line: String) { try? input.write(contentsOf: Data((line + "\n").utf8)) }

  /// Close the program's standard input.
  package func closeInput() { try? input.close() }

  /// The next line; nil when the program has ended.
  package func line() async -> String? {
    var lines = lines.makeAsyncIterator()
    return await lines.next()
  }

  /// The end of the program's standard error output.
  package var errors: String {
    String(decoding: (FileManager.default.contents(atPath: log) ?? Data()).suffix(4_000), as: UTF8.self)
  }

  /// Wait for the exit of a program that is about to end by itself.
  package func waitForExit() async -> ExitStatus {
    defer { limiter.cancel() }
    return await process.waitForExit()
  }

  /// End the program in any state.
  package func end() {
    limiter.cancel()
    process.kill()
    _ = process.waitForExitBlocking()
    try? FileManager.default.removeItem(atPath: log)
  }
}
