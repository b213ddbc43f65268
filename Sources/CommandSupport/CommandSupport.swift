package import ArgumentParser
package import CommandOutput
package import LinkSecurity
internal import Logging
internal import Operations
internal import UnixSignals

/// Time span as an option value: `500ms`, `90s`, `15m`, `1h`, `7d`; a number alone is in seconds.
package struct TimeSpanArgument: ExpressibleByArgument, CustomStringConvertible, Sendable {
  /// Ten years in seconds: a larger value is a mistake.
  package static let daysMax = 3650.0 * 86_400

  package let milliseconds: Int64

  package init(seconds: Double) { milliseconds = Int64((seconds * 1_000).rounded()) }

  package init?(argument: String) {
    guard let milliseconds = TimeSpan.milliseconds(argument) else { return nil }
    self.milliseconds = milliseconds
  }

  package var seconds: Double { Double(milliseconds) / 1_000 }

  package var description: String { TimeSpan.text(milliseconds: milliseconds) }

  package var defaultValueDescription: String { description }

  /// - Throws: if the time span is outside of `range`, in seconds.
  package func validate(_ flag: String, in range: ClosedRange<Double>) throws {
    guard range.contains(seconds) else {
      let (least, most) = (Self(seconds: range.lowerBound), Self(seconds: range.upperBound))
      throw ValidationError("\(flag) \(self): give \(least) to \(most)")
    }
  }
}

/// Value of an option that takes a list: elements separated by commas. Every such option takes several values and may
/// be repeated; all forms are equivalent.
package struct CommaList<Element: ExpressibleByArgument & Sendable>: ExpressibleByArgument, Sendable {
  package let elements: [Element]

  package init(_ elements: [Element]) { self.elements = elements }

  package init?(argument: String) {
    let parts = argument.split(separator: ",", omittingEmptySubsequences: false)
    let elements = parts.compactMap { $0.isEmpty ? nil : Element(argument: String($0)) }
    guard elements.count == parts.count else { return nil }
    self.elements = elements
  }

  package var defaultValueDescription: String {
    elements.map(\.defaultValueDescription).joined(separator: ",")
  }

  package static var allValueStrings: [String] { Element.allValueStrings }
}

extension Array {
  /// Concatenate the elements of all values of an option.
  package func joined<Value>() -> [Value] where Element == CommaList<Value> { flatMap(\.elements) }
}

/// Return the transform of an option's text.
///
/// - Parameters:
///   - form: what the error says to give.
///   - parse: nil for an invalid text.
package func parsing<Value>(_ form: String, _ parse: @escaping @Sendable (String) -> Value?)
  -> @Sendable (String) throws -> Value
{
  { text in
    guard let value = parse(text) else { throw ValidationError("give \(form)") }
    return value
  }
}

/// Check options against their ranges.
package func validateRanges(_ options: [(name: String, value: Int, range: ClosedRange<Int>)]) throws {
  for (name, value, range) in options where !range.contains(value) {
    throw ValidationError("--\(name) \(value): give \(range.lowerBound) to \(range.upperBound)")
  }
}

/// TLS options for connections to a store.
package struct StoreTLSOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp("CA for TLS to the store; it must have issued the store's certificate, PEM.", valueName: "file")
  )
  var tlsCa: String?
  @Option(help: ArgumentHelp("Client certificate for the store, PEM, such as a gateway's.", valueName: "file"))
  var tlsCert: String?
  @Option(help: ArgumentHelp("Private key of --tls-cert, PEM.", valueName: "file"))
  var tlsKey: String?

  package init() {}

  /// Nil: the connection is not encrypted.
  package var tls: LinkTLS? {
    get throws {
      let files = try LinkTLSFiles(certificate: tlsCert, privateKey: tlsKey, authority: tlsCa)
      // Standard output is reserved for the result.
      let logger = Logger(label: "tidemark") { StreamLogHandler.standardError(label: $0) }
      return try files.map { try LinkTLS($0, end: .gateway, logger: logger) }
    }
  }
}

/// Print an error as one line on standard error, and return the exit code to throw.
package func commandFailure(_ line: String, code: Int32 = 1) -> ExitCode {
  Terminal.printError(line)
  return ExitCode(code)
}

/// Run a command's body. Errors become a line for the person at the terminal and an exit code; an interrupt becomes the
/// exit code that shells use for it.
package func reportingErrors(_ command: String, _ body: () async throws -> Void) async throws {
  do {
    try await body()
  } catch let exit as ExitCode {
    throw exit
  } catch let interrupted as Interrupted {
    throw ExitCode(interrupted.signal == .sigint ? 130 : 143)
  } catch let error as SettingsError {
    throw commandFailure("\(command): \(error)", code: SettingsError.exitCode)
  } catch {
    throw commandFailure("\(command): \(error)")
  }
}

/// Run a command's work with a progress line, until it is done or interrupted.
package func withProgress<Value: Sendable>(
  _ body: @escaping @Sendable (@escaping ProgressHandler) async throws -> Value
) async throws -> Value {
  let progress = ProgressLine()
  return try await withInterrupts {
    defer { progress.clear() }
    return try await body(progress.show)
  }
}
