/// Sender of frames that prints the answers, for `probe send`.
package struct ProbeSender {
  private let target: ProbeTarget
  private let timeout: Duration
  private let printer: ProbePrinter

  package init(
    target: ProbeTarget,
    timeout: Duration,
    showsHex: Bool = false,
    output: @escaping ProbeOutput
  ) {
    self.target = target
    self.timeout = timeout
    printer = ProbePrinter(showsHex: showsHex, output: output)
  }

  /// Send frames and wait for their answers, and for the answer to a ping if the language requires one.
  ///
  /// - Returns: whether all answers came.
  /// - Throws: ``ProbeError`` without a connection, after a failed handshake, or for an invalid frame.
  package func send<Language: ProbeLanguage>(
    _ frames: [String],
    opens: Bool,
    in language: Language
  ) async throws -> Bool {
    var language = language
    let connection = try await ProbeConnection.connect(to: target, timeout: timeout)
    if let agreed = connection.agreed { printer.line("  \(agreed)") }
    language.connected()
    let exchange = ProbeExchange<Language>(connection, timeout: timeout, printer: printer)
    if opens { try await language.open(exchange, "") }
    var missing = 0
    for frame in frames {
      let units = try await exchange.send(frame, in: &language)
      // Bytes that are not a frame get an answer too.
      missing += units.isEmpty ? 1 : units.reduce(0) { $0 + language.answersAwaited($1) }
    }
    var isWell = try await receive(missing, exchange, &language)
    if isWell, Language.endsWithAliveness {
      let (ping, pong) = language.aliveness()
      try await exchange.send(ping, in: &language)
      let differences = try await exchange.differences(pong, in: &language)
      for line in differences { printer.line("    " + line) }
      isWell = differences.isEmpty
    }
    await exchange.close()
    return isWell
  }

  private func receive<Language: ProbeLanguage>(
    _ count: Int,
    _ exchange: ProbeExchange<Language>,
    _ language: inout Language
  ) async throws -> Bool {
    var missing = count
    while missing > 0 {
      switch try await exchange.receive(in: &language, where: { $0.isAnswer($1) }) {
      case .unit: missing -= 1
      case .closed:
        printer.line("the connection was closed")
        return false
      case .timedOut:
        printer.line("\(missing) answers are missing after \(timeout)")
        return false
      case .broken(let reason):
        printer.line("what came is no frame: \(reason)")
        return false
      }
    }
    return true
  }
}

/// Decoding for the commands, without a terminal.
package enum ProbeDecoding {
  /// Decode frames in hexadecimal text, one line each.
  ///
  /// - Returns: lines, and whether the text ends with a whole frame.
  /// - Throws: ``ProbeError`` for text that is not hexadecimal.
  package static func lines<Language: ProbeLanguage>(_ text: String, in language: Language) throws
    -> (text: [String], isWhole: Bool)
  {
    guard var bytes = Hex.bytes(text) else { throw ProbeError("hexadecimal digits are expected") }
    var language = language
    var lines: [String] = []
    while !bytes.isEmpty {
      switch Language.cut(bytes) {
      case .unit(let count):
        lines.append(language.text(language.read(Array(bytes.prefix(count)), .received)))
        bytes.removeFirst(count)
      case .incomplete:
        return (lines + ["\(bytes.count) bytes of an incomplete frame: \(Hex.text(bytes))"], false)
      case .broken(let reason): return (lines + ["\(reason): \(Hex.text(bytes))"], false)
      }
    }
    return (lines, true)
  }

  /// Decode frames of the store.
  package static func lines(_ text: String) throws -> (text: [String], isWhole: Bool) {
    try lines(text, in: StoreFrames())
  }

  /// Secret in a file: its first line.
  package static func secret(_ bytes: [UInt8]) -> [UInt8] {
    Array(bytes.prefix { $0 != UInt8(ascii: "\n") && $0 != UInt8(ascii: "\r") })
  }
}
