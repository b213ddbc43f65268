internal import Glibc
internal import NIOPosix

/// Lines of a descriptor, such as standard input. A line that is too long is skipped without being buffered.
package struct LineAssembler: Sendable {
  /// A line of the input.
  package enum Line: Sendable, Hashable {
    case text([UInt8])
    case tooLong
  }

  private let byteCountMax: Int
  private var partial: [UInt8] = []
  private var isSkipping = false

  /// - Parameter byteCountMax: longest line in bytes, without its line feed.
  package init(byteCountMax: Int) { self.byteCountMax = byteCountMax }

  /// Add bytes, and return the lines that they end.
  package mutating func add(_ bytes: some Collection<UInt8>) -> [Line] {
    var lines: [Line] = []
    var rest = bytes[...]
    while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
      append(rest[..<end])
      lines.append(take())
      rest = rest[rest.index(after: end)...]
    }
    append(rest)
    return lines
  }

  /// Return the last line, if it has no line feed.
  package mutating func end() -> Line? { partial.isEmpty && !isSkipping ? nil : take() }

  private mutating func append(_ bytes: some Collection<UInt8>) {
    guard !isSkipping else { return }
    if partial.count + bytes.count > byteCountMax {
      isSkipping = true
      partial = []
    } else {
      partial += bytes
    }
  }

  private mutating func take() -> Line {
    defer {
      partial = []
      isSkipping = false
    }
    return isSkipping ? .tooLong : .text(partial)
  }
}

/// Input and output of the push command. Each has a thread, because pipes and terminals block.
package final class PushStreams: Sendable {
  private static let readByteCount = 64 * 1_024
  /// Interval at which a read looks whether the process stops, in milliseconds.
  private static let pollMilliseconds: Int32 = 200

  private let input: Int32
  private let output: Int32
  private let reader = NIOThreadPool(numberOfThreads: 1)
  private let writer = NIOThreadPool(numberOfThreads: 1)

  /// Error of a write: the caller no longer reads the results.
  package struct OutputClosed: Error, CustomStringConvertible {
    /// The system's reason.
    package let description: String
  }

  /// - Parameters:
  ///   - input: descriptor of the jobs.
  ///   - output: descriptor of the results.
  package init(input: Int32 = STDIN_FILENO, output: Int32 = STDOUT_FILENO) {
    self.input = input
    self.output = output
    // A write to a closed pipe fails instead of ending the process with requests in flight.
    signal(SIGPIPE, SIG_IGN)
    reader.start()
    writer.start()
  }

  /// Return the next bytes; empty at the end, or when `isStopped` is true.
  func read(isStopped: @escaping @Sendable () -> Bool) async throws -> [UInt8] {
    let input = input
    return try await reader.runIfActive {
      while !isStopped() {
        var entry = pollfd(fd: input, events: Int16(POLLIN), revents: 0)
        let ready = poll(&entry, 1, Self.pollMilliseconds)
        if ready == 0 || (ready < 0 && errno == EINTR) { continue }
        let bytes = [UInt8](unsafeUninitializedCapacity: Self.readByteCount) { buffer, count in
          count = max(0, Glibc.read(input, buffer.baseAddress, buffer.count))
        }
        return bytes
      }
      return []
    }
  }

  /// Write a line. The call returns when the line is written, so a slow reader slows the worker.
  func write(_ line: String) async throws {
    let output = output
    try await writer.runIfActive {
      var bytes = Array((line + "\n").utf8)[...]
      while !bytes.isEmpty {
        let count = bytes.withUnsafeBytes { Glibc.write(output, $0.baseAddress, $0.count) }
        if count < 0, errno == EINTR { continue }
        guard count > 0 else { throw OutputClosed(description: "the results cannot be written: \(systemError(errno))") }
        bytes = bytes.dropFirst(count)
      }
    }
  }

  func close() async {
    try? await reader.shutdownGracefully()
    try? await writer.shutdownGracefully()
  }
}

private func systemError(_ number: Int32) -> String { String(cString: strerror(number)) }
