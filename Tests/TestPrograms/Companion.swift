import Foundation
import Glibc
package import LocalStack

/// A foreign program that runs beside the test and is talked to line by line, by one task at a time.
package final class Companion: Sendable {
  /// What it says, to its end.
  package let lines: AsyncStream<String>
  private let process: ChildProcess
  /// What it reads is written here.
  private let input: FileHandle
  private let log = NSTemporaryDirectory() + "tidemark-companion-\(UUID().uuidString).log"
  private let limiter: Task<Void, any Error>

  /// Starts it.
  ///
  /// - Parameters:
  ///   - program: a path, or a name that is looked for on the PATH.
  ///   - limit: it is ended after so long, so that nobody waits for ever for a line of it.
  package init(_ program: String, _ arguments: [String], limit: Duration = .seconds(900)) throws {
    // Who writes to a program that has ended is told so, and not ended too.
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

  /// Says a line to it; nothing happens where it has ended.
  package func send(_ line: String) { try? input.write(contentsOf: Data((line + "\n").utf8)) }

  /// It finds the end of what it reads.
  package func closeInput() { try? input.close() }

  /// The next line; nil when the program has ended.
  package func line() async -> String? {
    var lines = lines.makeAsyncIterator()
    return await lines.next()
  }

  /// The end of what it wrote as errors.
  package var errors: String {
    String(decoding: (FileManager.default.contents(atPath: log) ?? Data()).suffix(4_000), as: UTF8.self)
  }

  /// How it ended by itself, which it has to be about to do.
  package func waitForExit() async -> ExitStatus {
    defer { limiter.cancel() }
    return await process.waitForExit()
  }

  /// Ends it, whatever it is at.
  package func end() {
    limiter.cancel()
    process.kill()
    _ = process.waitForExitHere()
    try? FileManager.default.removeItem(atPath: log)
  }
}
