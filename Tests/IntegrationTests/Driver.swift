import Foundation
import Glibc
import LocalStack
import Synchronization
import Testing

/// A foreign program that drives a test, and asks for what only the test can do: talked to line by line, as ``Companion``, without a thread that waits for it.
final class Driver {
  /// What it says, to its end.
  let lines: AsyncStream<String>
  private let process = Process()
  private let input = Foundation.Pipe()
  private let output = Foundation.Pipe()
  private let log: String

  init(_ program: String, _ arguments: [String], log: String) throws {
    self.log = log
    _ = FileManager.default.createFile(atPath: log, contents: nil)
    process.executableURL = URL(fileURLWithPath: program)
    process.arguments = arguments
    process.standardInput = input
    process.standardOutput = output
    process.standardError = FileHandle(forWritingAtPath: log)
    let (lines, continuation) = AsyncStream.makeStream(of: String.self)
    self.lines = lines
    let buffer = Mutex(Data())
    output.fileHandleForReading.readabilityHandler = { handle in
      let more = handle.availableData
      if more.isEmpty {
        handle.readabilityHandler = nil
        return continuation.finish()
      }
      buffer.withLock { data in
        data.append(more)
        while let end = data.firstIndex(of: UInt8(ascii: "\n")) {
          continuation.yield(String(decoding: data[..<end], as: UTF8.self))
          data = Data(data[data.index(after: end)...])
        }
      }
    }
    try process.run()
  }

  func send(_ line: String) { input.fileHandleForWriting.write(Data((line + "\n").utf8)) }

  /// The end of what it wrote as errors.
  var errors: String { String(((try? String(contentsOfFile: log, encoding: .utf8)) ?? "").suffix(4_000)) }

  func end() {
    output.fileHandleForReading.readabilityHandler = nil
    if process.isRunning { kill(process.processIdentifier, SIGKILL) }
    process.waitUntilExit()
  }
}

extension Driver {
  /// Plays a case of a script of `Clients`: its last line has to begin with `ok`, and no gateway may have ended by itself.
  ///
  /// - Parameters:
  ///   - specification: what the script reads as JSON.
  ///   - body: hears the script to its end, and returns its last line.
  static func play(
    _ script: String,
    _ name: String,
    _ specification: [String: Any],
    _ pair: Pair,
    _ body: (Driver) async throws -> String
  ) async throws {
    let path = pair.directory + "/specification.json"
    try JSONSerialization.data(withJSONObject: specification).write(to: URL(fileURLWithPath: path))
    let driver = try Driver(
      Pair.python,
      [Pair.client(script), name, path],
      log: pair.directory + "/driver.log"
    )
    defer { driver.end() }
    let last = try await body(driver)
    #expect(last.hasPrefix("ok "), "\(name): \(last) \(driver.errors)")
    print(name, last)
    for gateway in await pair.stack.gatewayProcesses { #expect(gateway.isRunning) }
  }
}
