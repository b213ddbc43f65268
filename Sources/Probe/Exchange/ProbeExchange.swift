/// Protocol of a connection: where a unit ends, how it is written as a line, how it is decoded. The protocols are store
/// frames (``StoreFrames``) and HTTP/2 frames (``HTTP2Frames``).
protocol ProbeProtocol: SendableMetatype {
  /// Decoded frame. It is decoded in order, because a header block depends on the table of those before it.
  associatedtype Unit

  /// Find the end of the first unit.
  static func boundary(in bytes: [UInt8]) -> FrameBoundary
  /// Reset the state of the last connection.
  mutating func connected()
  /// Reset the state that outlives a connection.
  mutating func resetSession()
  /// Encode a line, `kind name=value …`. A protocol may fill in missing counters and correlations.
  ///
  /// - Throws: ``ProbeError``.
  mutating func encode(_ line: String) throws -> [UInt8]
  /// Decode a unit. Called once for each, in their order on the connection.
  mutating func read(_ bytes: [UInt8], _ direction: ProbeDirection) -> Unit
  /// Format a unit as a line.
  func text(_ unit: Unit) -> String
  /// Compare a unit with a line. Fields that the line does not name are not compared; `*` matches any value.
  ///
  /// - Returns: the differences, one line each.
  /// - Throws: ``ProbeError`` for an unknown name.
  func differences(_ line: String, from unit: Unit) throws -> [String]
  /// Return whether to compare a unit with a line. Other units are kept for later expectations.
  ///
  /// - Parameter line: nil if the end of the connection is expected.
  /// - Throws: ``ProbeError`` for an unknown name.
  func matches(_ unit: Unit, by line: String?) throws -> Bool
  /// Return the number of answers to a unit, 0 or 1.
  func answersAwaited(_ unit: Unit) -> Int
  /// Return whether a received unit is an answer.
  func isAnswer(_ unit: Unit) -> Bool
  /// Ping that every peer answers, and its answer.
  mutating func pingExchange() -> (send: String, expect: String)
  /// Open the connection.
  ///
  /// - Parameter line: fields that the script adds.
  /// - Throws: ``ProbeError`` for an unexpected answer.
  static func open(_ exchange: ProbeExchange<Self>, _ line: String) async throws
  /// Whether `probe send` pings after the answers: a peer may close the connection because of an unanswered unit.
  static var endsWithPing: Bool { get }
}

/// Direction of a unit.
enum ProbeDirection: Sendable {
  case sent, received
}

extension ProbeProtocol {
  mutating func connected() {}
  mutating func resetSession() {}
}

/// Start of a stream of bytes.
enum FrameBoundary: Equatable, Sendable {
  case incomplete
  /// Unit with its size in bytes.
  case unit(Int)
  /// Not a unit, with the reason.
  case broken(String)
}

/// Output of a transcript: standard output, or a list of lines in tests.
typealias ProbeOutput = (String) -> Void

/// Connection with a transcript of every unit. Keeps received units until a step expects them.
final class ProbeExchange<WireProtocol: ProbeProtocol> {
  /// Protocol with its state, which outlives the connection.
  var wireProtocol: WireProtocol
  private let connection: ProbeConnection
  private let printer: ProbePrinter
  /// Received units that no step has expected yet.
  private var waiting: [WireProtocol.Unit] = []
  /// Whether nothing was sent or received yet.
  package private(set) var isFresh = true
  /// Timeout of receiving.
  var timeout: Duration

  init(_ connection: ProbeConnection, _ wireProtocol: WireProtocol, timeout: Duration, printer: ProbePrinter) {
    self.connection = connection
    self.wireProtocol = wireProtocol
    self.timeout = timeout
    self.printer = printer
  }

  /// Send a frame, or several frames that `then` separates.
  ///
  /// - Parameter written: text in the script, which is shown for bytes that are not a unit.
  @discardableResult
  func send(_ line: String, written: String? = nil) async throws -> [WireProtocol.Unit] {
    isFresh = false
    let bytes = try encode(line)
    let units = split(bytes)
    if let units {
      for (unit, bytes) in units { printer.print("→", wireProtocol.text(unit), bytes) }
    } else {
      let raw = "\(bytes.count) raw bytes"
      printer.print("→", line.hasPrefix("hex:") ? raw : "\(written ?? line) (\(raw))", bytes)
    }
    await connection.send(bytes)
    return units?.map(\.unit) ?? []
  }

  /// Send a line many times and print the first.
  func send(_ line: String, times: Int, written: String) async throws {
    guard times > 0 else { return }
    try await send(line, written: written)
    var bytes: [UInt8] = []
    for _ in 1..<times {
      let more = try encode(line)
      _ = split(more)
      bytes += more
    }
    printer.line("  … \(times) times in all")
    await connection.send(bytes)
  }

  private func encode(_ line: String) throws -> [UInt8] {
    try ProbeScript.sequence(line).flatMap { try wireProtocol.encode($0) }
  }

  private func split(_ bytes: [UInt8]) -> [(unit: WireProtocol.Unit, bytes: [UInt8])]? {
    var units: [[UInt8]] = []
    var rest = bytes
    while !rest.isEmpty {
      guard case .unit(let count) = WireProtocol.boundary(in: rest) else { return nil }
      units.append(Array(rest.prefix(count)))
      rest.removeFirst(count)
    }
    return units.map { (wireProtocol.read($0, .sent), $0) }
  }

  /// Receive the first unit for which `matches` is true; keep the others.
  func receive(
    within timeout: Duration? = nil,
    where matches: (WireProtocol, WireProtocol.Unit) throws -> Bool
  ) async throws -> Received<WireProtocol.Unit> {
    if let index = try waiting.firstIndex(where: { try matches(wireProtocol, $0) }) {
      return .unit(waiting.remove(at: index))
    }
    let clock = ContinuousClock()
    let deadline = clock.now + (timeout ?? self.timeout)
    while true {
      let remaining = max(deadline - clock.now, .zero)
      isFresh = false
      switch try await connection.receive(timeout: remaining, boundary: { WireProtocol.boundary(in: $0) }) {
      case .unit(let bytes):
        let unit = wireProtocol.read(bytes, .received)
        printer.print("←", wireProtocol.text(unit), bytes)
        if try matches(wireProtocol, unit) { return .unit(unit) }
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
  func differences(_ line: String, within timeout: Duration? = nil) async throws -> [String] {
    let all = ProbeScript.alternatives(line)
    let lines = all.filter { $0 != "close" }
    let outcome = try await receive(within: timeout) { wireProtocol, unit in
      if lines.isEmpty { return try wireProtocol.matches(unit, by: nil) }
      return try lines.contains { try wireProtocol.matches(unit, by: $0) }
    }
    switch outcome {
    case .unit(let unit):
      if lines.isEmpty {
        return ["expected the end of the connection, received a frame", "received: \(wireProtocol.text(unit))"]
      }
      var differences: [String] = []
      for line in lines {
        let found = try wireProtocol.differences(line, from: unit)
        if found.isEmpty { return [] }
        differences += lines.count > 1 ? ["not \(line):"] + found.map { "  " + $0 } : found
      }
      return differences + ["received: \(wireProtocol.text(unit))"]
    case .closed where lines.count < all.count: return []
    case .closed: return ["expected \(line), the connection was closed"]
    case .timedOut: return ["expected \(Self.named(line)), nothing came in time"]
    case .broken(let reason): return ["expected \(Self.named(line)), received bytes that are not a frame: \(reason)"]
    }
  }

  /// Send a ping and compare the answer.
  func ping(within timeout: Duration? = nil) async throws -> [String] {
    let (ping, pong) = wireProtocol.pingExchange()
    try await send(ping)
    return try await differences(pong, within: timeout)
  }

  private static func named(_ line: String) -> String {
    line == "close" ? "the end of the connection" : line
  }

  func close() async { await connection.close() }
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
