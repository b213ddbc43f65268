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

  /// Send frames and wait for their answers, and for the answer to a ping if the protocol requires one.
  ///
  /// - Returns: whether all answers came.
  /// - Throws: ``ProbeError`` without a connection, after a failed handshake, or for an invalid frame.
  package func send<WireProtocol: ProbeProtocol>(
    _ frames: [String],
    opens: Bool,
    in wireProtocol: WireProtocol
  ) async throws -> Bool {
    var wireProtocol = wireProtocol
    let connection = try await ProbeConnection.connect(to: target, timeout: timeout)
    if let agreed = connection.agreed { printer.line("  \(agreed)") }
    wireProtocol.connected()
    let exchange = ProbeExchange<WireProtocol>(connection, timeout: timeout, printer: printer)
    if opens { try await wireProtocol.open(exchange, "") }
    var missing = 0
    for frame in frames {
      let units = try await exchange.send(frame, in: &wireProtocol)
      // Bytes that are not a frame get an answer too.
      missing += units.isEmpty ? 1 : units.reduce(0) { $0 + wireProtocol.answersAwaited($1) }
    }
    var isWell = try await receive(missing, exchange, &wireProtocol)
    if isWell, WireProtocol.endsWithPing {
      let (ping, pong) = wireProtocol.pingExchange()
      try await exchange.send(ping, in: &wireProtocol)
      let differences = try await exchange.differences(pong, in: &wireProtocol)
      for line in differences { printer.line("    " + line) }
      isWell = differences.isEmpty
    }
    await exchange.close()
    return isWell
  }

  private func receive<WireProtocol: ProbeProtocol>(
    _ count: Int,
    _ exchange: ProbeExchange<WireProtocol>,
    _ wireProtocol: inout WireProtocol
  ) async throws -> Bool {
    var missing = count
    while missing > 0 {
      switch try await exchange.receive(in: &wireProtocol, where: { $0.isAnswer($1) }) {
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
  package static func lines<WireProtocol: ProbeProtocol>(_ text: String, in wireProtocol: WireProtocol) throws
    -> (text: [String], isWhole: Bool)
  {
    guard var bytes = Hex.bytes(text) else { throw ProbeError("hexadecimal digits are expected") }
    var wireProtocol = wireProtocol
    var lines: [String] = []
    while !bytes.isEmpty {
      switch WireProtocol.cut(bytes) {
      case .unit(let count):
        lines.append(wireProtocol.text(wireProtocol.read(Array(bytes.prefix(count)), .received)))
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
