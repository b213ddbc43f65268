/// Output of a transcript: standard output, or a list of lines in tests.
package typealias ProbeOutput = (String) -> Void

/// Connection with a transcript of every unit. Keeps received units until a step expects them.
package final class ProbeExchange<Language: ProbeLanguage> {
  private let connection: ProbeConnection
  private let printer: ProbePrinter
  /// Received units that no step has expected yet.
  private var waiting: [Language.Unit] = []
  /// Whether nothing was sent or received yet.
  package private(set) var isFresh = true
  /// Timeout of receiving.
  package var timeout: Duration

  init(_ connection: ProbeConnection, timeout: Duration, printer: ProbePrinter) {
    self.connection = connection
    self.timeout = timeout
    self.printer = printer
  }

  /// Send a frame, or several frames that `then` separates.
  ///
  /// - Parameter written: text in the script, which is shown for bytes that are not a unit.
  @discardableResult
  package func send(_ line: String, written: String? = nil, in language: inout Language) async throws
    -> [Language.Unit]
  {
    isFresh = false
    let bytes = try encode(line, &language)
    let units = split(bytes, &language)
    if let units {
      for (unit, bytes) in units { printer.print("→", language.text(unit), bytes) }
    } else {
      let raw = "\(bytes.count) raw bytes"
      printer.print("→", line.hasPrefix("hex:") ? raw : "\(written ?? line) (\(raw))", bytes)
    }
    await connection.send(bytes)
    return units?.map(\.unit) ?? []
  }

  /// Send a line many times and print the first.
  package func send(_ line: String, times: Int, written: String, in language: inout Language) async throws {
    guard times > 0 else { return }
    try await send(line, written: written, in: &language)
    var bytes: [UInt8] = []
    for _ in 1..<times {
      let more = try encode(line, &language)
      _ = split(more, &language)
      bytes += more
    }
    printer.line("  … \(times) times in all")
    await connection.send(bytes)
  }

  private func encode(_ line: String, _ language: inout Language) throws -> [UInt8] {
    try ProbeScript.sequence(line).flatMap { try language.encode($0) }
  }

  private func split(_ bytes: [UInt8], _ language: inout Language) -> [(unit: Language.Unit, bytes: [UInt8])]?
  {
    var units: [[UInt8]] = []
    var rest = bytes
    while !rest.isEmpty {
      guard case .unit(let count) = Language.cut(rest) else { return nil }
      units.append(Array(rest.prefix(count)))
      rest.removeFirst(count)
    }
    return units.map { (language.read($0, .sent), $0) }
  }

  /// Outcome of waiting for a unit.
  package enum Outcome {
    /// Expected unit.
    case unit(Language.Unit)
    /// The connection ended before such a unit.
    case closed
    case timedOut
    /// Not a unit of the language, with the reason.
    case broken(String)
  }

  /// Receive the first unit for which `matches` is true; keep the others.
  package func receive(
    in language: inout Language,
    within timeout: Duration? = nil,
    where matches: (Language, Language.Unit) throws -> Bool
  ) async throws -> Outcome {
    if let index = try waiting.firstIndex(where: { try matches(language, $0) }) {
      return .unit(waiting.remove(at: index))
    }
    let clock = ContinuousClock()
    let deadline = clock.now + (timeout ?? self.timeout)
    while true {
      let left = max(deadline - clock.now, .zero)
      isFresh = false
      switch try await connection.receive(timeout: left, cut: { Language.cut($0) }) {
      case .unit(let bytes):
        let unit = language.read(bytes, .received)
        printer.print("←", language.text(unit), bytes)
        if try matches(language, unit) { return .unit(unit) }
        waiting.append(unit)
      case .closed: return .closed
      case .timedOut: return .timedOut
      case .broken(let reason): return .broken(reason)
      }
    }
  }

  /// Receive a unit and compare it with a line. `or` separates alternatives; `close` is the end of the connection.
  ///
  /// - Returns: the differences, one line each.
  /// - Throws: ``ProbeError`` for an unknown name.
  package func differences(
    _ line: String,
    within timeout: Duration? = nil,
    in language: inout Language
  ) async throws -> [String] {
    let all = ProbeScript.alternatives(line)
    let lines = all.filter { $0 != "close" }
    let outcome = try await receive(in: &language, within: timeout) { language, unit in
      if lines.isEmpty { return try language.matches(unit, by: nil) }
      return try lines.contains { try language.matches(unit, by: $0) }
    }
    switch outcome {
    case .unit(let unit):
      if lines.isEmpty {
        return ["expected the end of the connection, received a frame", "received: \(language.text(unit))"]
      }
      var differences: [String] = []
      for line in lines {
        let found = try language.differences(line, from: unit)
        if found.isEmpty { return [] }
        differences += lines.count > 1 ? ["not \(line):"] + found.map { "  " + $0 } : found
      }
      return differences + ["received: \(language.text(unit))"]
    case .closed where lines.count < all.count: return []
    case .closed: return ["expected \(line), the connection was closed"]
    case .timedOut: return ["expected \(Self.named(line)), nothing came in time"]
    case .broken(let reason): return ["expected \(Self.named(line)), what came is no frame: \(reason)"]
    }
  }

  private static func named(_ line: String) -> String {
    line == "close" ? "the end of the connection" : line
  }

  package func close() async { await connection.close() }
}

/// Printer of a transcript.
struct ProbePrinter {
  /// Length at which a line is cut.
  static let lineLengthMax = 600

  var showsHex: Bool
  var output: ProbeOutput

  func line(_ text: String) { output(text) }

  func print(_ arrow: String, _ text: String, _ bytes: [UInt8]) {
    let isLong = text.utf8.count > Self.lineLengthMax
    output("\(arrow) \(isLong ? "\(text.prefix(Self.lineLengthMax))… (\(bytes.count) bytes)" : text)")
    guard showsHex else { return }
    for start in stride(from: 0, to: bytes.count, by: 32) {
      let row = bytes[start..<min(start + 32, bytes.count)]
      output(
        "    "
          + stride(from: row.startIndex, to: row.endIndex, by: 4).map {
            Hex.text(row[$0..<min($0 + 4, row.endIndex)])
          }.joined(separator: " ")
      )
    }
  }
}
