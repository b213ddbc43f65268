package import Logging
internal import NIOConcurrencyHelpers
internal import NIOCore

/// Where log lines are written: each is one line whatever its values are. What came from a peer may have line feeds,
/// escape sequences of terminals and other control characters, which would forge lines or hide them.
package struct LogLines: TextOutputStream, Sendable {
  private let output: @Sendable (String) -> Void

  /// - Parameter output: takes a line with its line feed.
  package init(_ output: @escaping @Sendable (String) -> Void) { self.output = output }

  /// A handler that writes such lines.
  package static func handler(
    label: String,
    _ output: @escaping @Sendable (String) -> Void = { ProcessRunner.printError(line: $0) }
  ) -> StreamLogHandler {
    StreamLogHandler(label: label, stream: LogLines(output), metadataProvider: nil)
  }

  /// Takes what a handler writes at once: a line, with its line feed.
  package mutating func write(_ text: String) {
    output(Self.escaped(text.hasSuffix("\n") ? text.dropLast() : text[...]) + "\n")
  }

  /// The text with control characters as `\n` or `\u{1B}`, and so with what separates lines and paragraphs or changes
  /// the direction of writing.
  package static func escaped(_ text: some StringProtocol) -> String {
    guard text.unicodeScalars.contains(where: isEscaped) else { return String(text) }
    var escaped = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\n": escaped += #"\n"#
      case "\r": escaped += #"\r"#
      case "\t": escaped += #"\t"#
      case _ where isEscaped(scalar):
        escaped += #"\u{"# + String(scalar.value, radix: 16, uppercase: true) + "}"
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

/// How often something is logged that strangers can cause thousands of times a second: once a second for each kind.
package final class LogThrottle: Sendable {
  private let notes = NIOLockedValueBox<[String: RefusalNote]>([:])

  package init() {}

  /// - Parameter kind: one of few; nothing that a peer can choose.
  /// - Returns: how often it happened since it was logged last, this time included; nil: no line is due.
  package func due(_ kind: String) -> Int? { due(kind, at: .now()) }

  func due(_ kind: String, at now: NIODeadline) -> Int? {
    notes.withLockedValue { $0[kind, default: RefusalNote()].refused(at: now) }
  }
}
