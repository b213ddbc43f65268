extension ProbeRunner {
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
    let exchange = try await connect(&wireProtocol, timeout)
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
        printer.line("received bytes that are not a frame: \(reason)")
        return false
      }
    }
    return true
  }
}
