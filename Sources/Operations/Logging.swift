internal import Foundation
package import Logging
internal import NIOConcurrencyHelpers
package import NIOCore
internal import NIOPosix
internal import Synchronization

/// Output stream of log lines that escapes their values, so that each stays one line. Values from a peer may contain
/// line feeds, terminal escape sequences and other control characters, which would forge or hide lines.
package struct LogLines: TextOutputStream, Sendable {
  private let output: @Sendable (String) -> Void

  /// - Parameter output: receives each line with its line feed.
  package init(_ output: @escaping @Sendable (String) -> Void) { self.output = output }

  /// Create a log handler that writes such lines.
  package static func handler(
    label: String,
    _ output: @escaping @Sendable (String) -> Void = { ProcessRunner.printError(line: $0) }
  ) -> StreamLogHandler {
    StreamLogHandler(label: label, stream: LogLines(output), metadataProvider: nil)
  }

  /// Write the complete line of a log handler, with its line feed.
  package mutating func write(_ text: String) {
    output(Self.escaped(text.hasSuffix("\n") ? text.dropLast() : text[...]) + "\n")
  }

  /// Escape control characters as `\n` or `\u{1B}`. The same applies to line and paragraph separators, and to
  /// characters that change the writing direction.
  package static func escaped(_ text: some StringProtocol) -> String {
    guard text.unicodeScalars.contains(where: isEscaped) else { return String(text) }
    var escaped = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\n": escaped += #"\n"#
      case "\r": escaped += #"\r"#
      case "\t": escaped += #"\t"#
      case _ where isEscaped(scalar): escaped += #"\u{"# + String(scalar.value, radix: 16, uppercase: true) + "}"
      default: escaped.unicodeScalars.append(scalar)
      }
    }
    return escaped
  }

  private static func isEscaped(_ scalar: Unicode.Scalar) -> Bool {
    switch scalar.value {
    case 0..<0x20, 0x7F...0x9F, 0x2028...0x202E, 0x2066...0x2069, 0x200E, 0x200F: true
    default: false
    }
  }
}

/// Rate limit for logging an event that may happen thousands of times a second.
package struct LogRateLimiter: Sendable {
  private var last: NIODeadline?
  private var count = 0

  package init() {}

  /// - Returns: the number of events since the last line, including this one; nil: do not log now.
  package mutating func occurrence(at now: NIODeadline) -> Int? {
    count += 1
    if let last, now < last + .seconds(1) { return nil }
    defer { count = 0 }
    last = now
    return count
  }
}

/// Rate limit for log lines that strangers can cause thousands of times a second: one line a second for each kind.
package final class LogThrottle: Sendable {
  private let limiters = NIOLockedValueBox<[String: LogRateLimiter]>([:])

  package init() {}

  /// - Parameter kind: one of a few fixed values; never a value that a peer can choose.
  /// - Returns: occurrences since the last logged line, including this one; nil: do not log now.
  package func occurrencesToLog(_ kind: String) -> Int? { occurrencesToLog(kind, at: .now()) }

  func occurrencesToLog(_ kind: String, at now: NIODeadline) -> Int? {
    limiters.withLockedValue { $0[kind, default: LogRateLimiter()].occurrence(at: now) }
  }
}

/// Log handler that uses the process's log level, unless its logger has a level of its own.
struct AdjustableLogHandler: LogHandler {
  private static let index = Atomic<Int>(0)

  /// Log level of the process.
  static var level: Logger.Level {
    get { Logger.Level.allCases[index.load(ordering: .relaxed)] }
    set { index.store(Logger.Level.allCases.firstIndex(of: newValue) ?? 0, ordering: .relaxed) }
  }

  private var inner: StreamLogHandler
  private var ownLevel: Logger.Level?

  init(_ inner: StreamLogHandler) {
    self.inner = inner
    // The caller has already compared levels.
    self.inner.logLevel = .trace
  }

  var logLevel: Logger.Level {
    get { ownLevel ?? Self.level }
    set { ownLevel = newValue }
  }

  func log(event: LogEvent) { inner.log(event: event) }

  var metadata: Logger.Metadata {
    get { inner.metadata }
    set { inner.metadata = newValue }
  }

  var metadataProvider: Logger.MetadataProvider? {
    get { inner.metadataProvider }
    set { inner.metadataProvider = newValue }
  }

  subscript(metadataKey key: String) -> Logger.Metadata.Value? {
    get { inner[metadataKey: key] }
    set { inner[metadataKey: key] = newValue }
  }
}

/// Text of socket and file errors for a person at the terminal, without the call names and numbers in the errors' own
/// descriptions.
package enum ErrorText {
  /// Describe an error, as in `Address already in use` or `cannot resolve "gateway-9"`.
  package static func of(_ error: any Error) -> String {
    switch error {
    case let error as NIOConnectionError:
      // With several addresses, report the first one tried; with none, the name was not found.
      if let first = error.connectionErrors.first { return of(first.error) }
      return noAddress(error.host)
    case let error as IOError: return String(cString: strerror(error.errnoCode))
    case let error as SocketAddressError.UnknownHost: return noAddress(error.host)
    case ChannelError.connectTimeout(let time): return "timed out after \(time.nanoseconds / 1_000_000_000) s"
    default: return "\(error)"
    }
  }

  private static func noAddress(_ host: String) -> String { "cannot resolve \"\(host)\"" }
}
